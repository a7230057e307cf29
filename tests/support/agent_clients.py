"""Agents in the test's process: they take orders and report through the mailbox, without HTTP."""

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import ValidationError

from hposvc.backends.agents import Agents
from hposvc.journal import agents
from hposvc.journal.agents import AgentMailbox
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.server import agent_orders
from hposvc.server.agent_orders import Undecided
from hposvc.server.problems import ApiError
from hposvc.server.routes.agents import TellBody
from hposvc.text import spelled
from trainables.link import Report
from trainables.runtime.assignment import Assignment, Outcome, carry_out
from trainables.runtime.wire import Beat
from trainables.storage.checkpoint import FOREIGN, Saved
from trainables.worker import Diverged, TooLarge

POLL_S = 0.01


@dataclass
class Client:
    """A client of the mailbox; each method is a request."""

    store: Store
    sweep: str
    name: str = "agent-1"

    def ask(self, n=1):
        with self.store.writing() as connection:
            held, new = agents.lease(connection, self.sweep, self.name, "", n)
        return [agent_orders.work_of(row) for row in (*held, *new)]

    def tell(self, message):
        """Send a message as JSON, and return the reply; None: it is not decided yet."""
        try:
            body = TellBody(client_id=self.name, message=spelled(message))
        except ValidationError as error:
            raise ApiError(400, "bad_request", f"{error}") from error
        with self.store.writing() as connection:
            reply = agent_orders.tell(connection, self.sweep, self.name, body.message)
        return None if isinstance(reply, Undecided) else reply

    def report(self, work, step, metrics, checkpoint=None):
        return self.tell(Report(work.id, step, metrics, checkpoint))

    def beat(self, work):
        return self.tell(Beat(work.id))

    def end(self, work, kind="ended", message=""):
        self.tell(Outcome(work.id, kind, message))

    def reply(self, order, step):
        """Return the reply to the report of a step as it is now."""
        with self.store.reading() as connection:
            row = agents.find(connection, self.sweep, self.name, order)
        if row.state != "leased":
            raise agent_orders.lost(self.name, order)
        return agent_orders.reply_to(row, step)

    def show_server(self):
        with self.store.writing() as connection:
            agents.show_server(connection)


@dataclass
class Runtime:
    """A client in a thread that carries out orders by hposvc's own runtime, one at a time."""

    client: Client
    config: object
    closed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self):
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def close(self):
        self.closed.set()
        self.thread.join()

    def _work(self):
        while not self.closed.is_set():
            for work in self.client.ask():
                self._carry_out(work)
            self.closed.wait(POLL_S)

    def _carry_out(self, work):
        outcome = carry_out(
            self.config, Assignment(work.to_order()), 0, _Link(self.client, self.closed)
        )
        with suppress(ApiError):  # it has lost the lease
            self.client.tell(outcome)


@dataclass
class _Link:
    client: Client
    closed: threading.Event

    def exchange(self, report):
        try:
            reply = self.client.tell(report)
            while reply is None and not self.closed.is_set():
                time.sleep(POLL_S)
                reply = self.client.reply(report.order, report.step)
        except ApiError:  # it has lost the lease
            return False
        return reply == "continue"

    def tell(self, message):
        self.client.tell(message)

    def beat(self):
        pass

    def once(self, name, work):
        return work()


@dataclass
class AgentsBench:
    """The backend of agents, with one agent that serves it."""

    backend: object
    runtime: Runtime
    journal: Journal

    def __getattr__(self, name):
        return getattr(self.backend, name)

    def events(self, timeout_s):
        """Return the events, of which the journal has taken the messages."""
        events = self.backend.events(timeout_s)
        self.journal.append(self.runtime.client.sweep, 0, [], (), self.backend.delivered())
        return events

    def close(self):
        self.runtime.close()
        self.backend.close()


def open_bench(backend_class, setting, folder: Path):
    """Return the backend with an agent, on a database in this folder."""
    store = Store(f"sqlite:///{folder / 'x.db'}")
    mailbox = AgentMailbox(store, setting.sweep)
    backend = backend_class(replace(setting, mailbox=mailbox))
    runtime = Runtime(Client(store, setting.sweep), setting.slot_config())
    return AgentsBench(backend, runtime, Journal(store))


@dataclass
class Worker:
    """A worker that trains a simulated curve, a request at a time, and notes checkpoints only."""

    client: Client
    curve: object
    eager: bool = False  # a checkpoint comes with each report, or only when asked for
    work: object = None  # the order that it has
    step: int = 0
    waits: bool = False  # for the answer to its last report

    def act(self):
        """Send the next request."""
        try:
            self._act()
        except ApiError as error:
            if error.code != "lease_lost":
                raise
            self.work = None

    def _act(self):
        if self.work is None:
            [self.work] = self.client.ask() or [None]
            if self.work is not None:
                self.step, self.waits = self.work.first, False
        elif self.waits:
            self._heed(self.client.reply(self.work.id, self.step))
        elif self.step > self.work.until:
            self._end()
        else:
            self._train()

    def _train(self):
        try:
            metrics, _ = self.curve(self.work.params, self.step)
        except MemoryError:
            self._end("oom", "out of memory")
        except TooLarge:
            self._end("oversize", "half of it may fit")
        except Diverged as error:
            self._end("diverged", f"{error}")
        except RuntimeError as error:
            self._end("user", f"{error}")
        else:
            saved = self._checkpoint() if self.eager else None
            self._heed(self.client.report(self.work, self.step, metrics, saved))

    def _heed(self, verdict):
        self.waits = verdict is None
        match verdict:
            case "continue":
                self.step += 1
            case "stop":
                self._end()
            case "checkpoint":
                metrics, _ = self.curve(self.work.params, self.step)
                saved = self._checkpoint()
                self._heed(self.client.report(self.work, self.step, metrics, saved))

    def _checkpoint(self):
        return Saved(self.step, f"{FOREIGN}{self.work.trial}-{self.work.id}-{self.step}")

    def _end(self, *how):
        work, self.work = self.work, None
        self.client.end(work, *how)


class Crewed(Agents):
    """The backend of agents, whose workers send a request each before the driver looks."""

    crew = ()

    def events(self, timeout_s):
        for worker in self.crew:
            worker.act()
        return super().events(0.0)

    def close(self):
        pass  # as when its process is killed
