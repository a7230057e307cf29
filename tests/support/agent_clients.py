"""Agents in the test's process: they take orders and report through the mailbox, without HTTP."""

import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from hposvc.backends.agents import Agents
from hposvc.journal import agents
from hposvc.journal.agents import AgentMailbox, AgentOrder
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.server import agent_orders
from hposvc.server.problems import ApiError
from trainables.link import CheckpointSaved, DataDeclared, Suggestion
from trainables.runtime.assignment import Assignment, carry_out
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
        return [agent_orders.work_of(row).model_dump() for row in (*held, *new)]

    def report(self, work, step, metrics, checkpoint=None):
        """Return the verdict; None: it is not decided yet."""
        with self.store.writing() as connection:
            row = self._row(connection, work)
            return agent_orders.report(connection, self.sweep, row, step, metrics, {}, checkpoint)

    def verdict(self, work, step):
        """Return the verdict as it is now."""
        with self.store.reading() as connection:
            row = self._row(connection, work)
        if row.state != "leased":
            raise agent_orders.lost(self.name, row.trial)
        return agent_orders.verdict_of(row, step)

    def keep(self, work, checkpoint=None, data=None, suggested=None):
        with self.store.writing() as connection:
            row = self._row(connection, work)
            agent_orders.keep(connection, self.sweep, row, checkpoint, data, None, suggested)

    def beat(self, work):
        with self.store.writing() as connection:
            return agent_orders.beat(connection, self.sweep, self._row(connection, work))

    def tell(self, work, state="done", reason="", cause=None, how="", damaged=False, whole=False):
        details = {"how": how, "unused": None, "damaged": damaged, "whole": whole}
        with self.store.writing() as connection:
            row = self._row(connection, work)
            agent_orders.tell(connection, self.sweep, row, state, reason, cause, details)

    def show_server(self):
        with self.store.writing() as connection:
            agents.show_server(connection)

    def _row(self, connection, work):
        number = work["order"]
        return agent_orders.find(connection, self.sweep, self.name, work["trial"], number)


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
        link = _Link(self.client, work, self.closed)
        outcome = carry_out(self.config, Assignment(AgentOrder(**work).to_order()), 0, link)
        state = "done" if outcome.kind == "ended" else "failed"
        known = ("oom", "oversize", "diverged", "user", "storage", "preempt")
        cause = outcome.kind if outcome.kind in known else "infra"
        with suppress(ApiError):  # it has lost the lease
            self.client.tell(
                work,
                state,
                outcome.message,
                cause,
                how=outcome.how,
                damaged=outcome.kind == "damaged",
                whole=outcome.sweep_wide,
            )


@dataclass
class _Link:
    client: Client
    work: dict
    closed: threading.Event

    def exchange(self, report):
        saved = report.checkpoint
        try:
            answer = self.client.report(self.work, report.step, report.metrics, saved)
            while answer is None and not self.closed.is_set():
                time.sleep(POLL_S)
                answer = self.client.verdict(self.work, report.step)
        except ApiError:  # it has lost the lease
            return False
        return answer == "continue"

    def tell(self, message):
        match message:
            case CheckpointSaved():
                self.client.keep(self.work, message.saved)
            case DataDeclared():
                self.client.keep(self.work, data=[asdict(one) for one in message.data])
            case Suggestion():
                body = message._asdict()
                del body["order"]
                self.client.keep(self.work, suggested=body)

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
    work: dict | None = None
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
                self.step, self.waits = self.work["first"], False
        elif self.waits:
            self._heed(self.client.verdict(self.work, self.step))
        elif self.step > self.work["until"]:
            self._end()
        else:
            self._train()

    def _train(self):
        try:
            metrics, _ = self.curve(self.work["params"], self.step)
        except MemoryError:
            self._end("failed", "out of memory", "oom")
        except TooLarge:
            self._end("failed", "half of it may fit", "oversize")
        except Diverged as error:
            self._end("failed", f"{error}", "diverged")
        except RuntimeError as error:
            self._end("failed", f"{error}")
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
                metrics, _ = self.curve(self.work["params"], self.step)
                saved = self._checkpoint()
                self._heed(self.client.report(self.work, self.step, metrics, saved))

    def _checkpoint(self):
        return f"{self.work['trial']}-{self.work['order']}-{self.step}"

    def _end(self, *how):
        work, self.work = self.work, None
        self.client.tell(work, *(how or ["done"]))


class Crewed(Agents):
    """The backend of agents, whose workers send a request each before the driver looks."""

    crew = ()

    def events(self, timeout_s):
        for worker in self.crew:
            worker.act()
        return super().events(0.0)

    def close(self):
        pass  # as when its process is killed
