"""The backend of agents: clients take the orders, by lease, from a mailbox in the database.

There are no slots: as many orders are open as clients ask for. Orders outlive this process, and the
next driver adopts them. A lease ends if its client gives no sign of life for `engine.lease` seconds
of this process's monotonic clock, during which a server lived to hear one.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hposvc.backends.backend import Answer, Backend, Setting
from hposvc.events import BackendEvent, Cause, Ended, Failed, Reported
from hposvc.journal.agents import AgentOrder, Look, MailboxTurn, OrderLease
from hposvc.spec import registry
from hposvc.spec.paths import checkpoints_url
from trainables.contract import Order, trial_seed

BUSY_POLL_S, IDLE_POLL_S = 0.01, 0.1  # seconds between two looks into the mailbox
BUSY_S = 2.0  # since the last message: then the next one is soon to come
WISH_S = 10.0  # a client that asked, and has not for so long, is gone
SERVER_S = 6.0  # a server that has not shown itself for so long was away
LONGEST_TURN_S = 1.0  # of the lease's clock between two looks: this process may have been frozen


@dataclass
class _Held:
    """An order in the mailbox."""

    order: Order
    step: int  # the last one that the driver has seen
    lease: OrderLease | None = None  # as last seen
    since: float = 0.0  # on the lease's clock: it has not changed since
    missed: int = 0  # looks in which neither it nor its last message was there

    @property
    def is_open(self) -> bool:
        return self.lease is None or self.lease.client is None


class Agents(Backend):
    """A backend without slots: orders wait for clients that ask for them."""

    def __init__(self, setting: Setting) -> None:
        if setting.mailbox is None:
            raise ValueError("engine agents needs the mailbox of its sweep's journal")
        self._mailbox = setting.mailbox
        self.setting, spec = setting, setting.spec
        self._lease_s = spec.engine.lease_s
        policy = registry.build(registry.SCHEDULERS, spec.scheduler)
        self._copies = bool(policy.scheduler(spec.plan).copies)
        self._parallel: int | Literal["auto"] = spec.trials.parallel
        self._orders: dict[int, _Held] = {}
        self._turn = MailboxTurn()
        self._delivered: list[int] = []
        self._wanted = 0  # trials that living clients wait for
        self._offered = 0  # capacity when the driver was last told
        self._wishes: dict[str, tuple[int, float]] = {}  # looks of each client, and since when
        self._clock = 0.0  # of leases, in seconds
        self._unproven = 0.0  # seconds since the server's last sign of life
        self._looked_at = time.monotonic()
        self._server = (-1, float("-inf"))  # its last sign of life, and when it came
        self._heard_at = float("-inf")  # when the last message came
        agent = f"hposvc agent {setting.sweep} --server http://HOST:8900"
        setting.say(f"waiting for agents; start one by: {agent}")

    def capacity(self) -> int:
        waiting = sum(held.is_open for held in self._orders.values())
        free = self._wanted - waiting
        if self._parallel != "auto":
            free = min(free, self._parallel - len(self._orders))
        return max(0, free)

    def slots(self) -> int:
        if self._parallel != "auto":
            return self._parallel
        return max(1, len(self._orders) + self.capacity())

    def adopt(self, orders: Sequence[tuple[Order, int]]) -> tuple[int, ...]:
        recorded = self._mailbox.known()
        self._orders = {
            order.id: _Held(order, step) for order, step in orders if order.id in recorded
        }
        self._turn.dropped = [*recorded - self._orders.keys()]
        if self._orders:
            self.setting.say("")
        return tuple(self._orders)

    def start(self, order: Order, environment: dict[str, str]) -> None:
        self.setting.say("")
        self._orders[order.id] = _Held(order, order.first - 1, since=self._clock)
        self._turn.opened.append(self._for_agents(order, environment))

    def decide(self, order: int, verdict: Answer) -> None:
        held = self._orders.get(order)
        if held is None:
            return
        decision = None if verdict == "continue" else verdict
        before = self._turn.answers.get(order, (0, None))[1]
        self._turn.answers[order] = (held.step, before if before == "stop" else decision or before)
        if decision is not None and held.is_open:  # if no client has it in this moment either
            nobody = held.lease or OrderLease(None, 0)
            self._turn.ended.append((nobody, Ended(self.now(), order, held.order.trial)))

    def kill(self, order: int) -> None:
        if (held := self._orders.get(order)) is not None:
            self._turn.ended.append((None, Ended(self.now(), order, held.order.trial)))

    def set_parallel(self, parallel: int | Literal["auto"]) -> None:
        self._parallel = parallel

    def set_slot_limit(self, slots: int) -> int:
        return self.setting.spec.resources.ranks  # nothing is reserved

    def events(self, timeout_s: float) -> Sequence[BackendEvent]:
        self._delivered = []
        deadline = time.monotonic() + timeout_s
        while True:
            self._write()
            look = self._mailbox.look(self.now())
            now = time.monotonic()
            self._watch(look, now)
            self._delivered = [number for number, _ in look.messages]
            events = [event for _, event in look.messages if self._take(event)]
            events += self._give_up_missing(look)
            if look.messages:
                self._heard_at = now
            more, self._offered = self.capacity() > self._offered, self.capacity()
            if events or look.messages or more or now >= deadline:
                return events
            pause_s = BUSY_POLL_S if now - self._heard_at < BUSY_S else IDLE_POLL_S
            time.sleep(max(0.0, min(pause_s, deadline - now)))

    def delivered(self) -> Sequence[int]:
        return self._delivered

    def close(self) -> None:
        self._write()  # what was decided is told; the orders stay for the next driver

    def _write(self) -> None:
        turn, self._turn = self._turn, MailboxTurn()
        if turn != MailboxTurn():
            self._mailbox.write(turn)

    def _for_agents(self, order: Order, environment: Mapping[str, str]) -> AgentOrder:
        """Return an order, with what clients need to carry it out, and servers to check reports."""
        spec, setting = self.setting.spec, self.setting
        return AgentOrder(
            **vars(order),
            total=spec.last_step,
            seed=trial_seed(spec.seed, order),
            lease_s=self._lease_s,
            environment=environment,
            metrics=[metric.name for metric in spec.objectives],
            folder=f"{setting.folder}",
            storage=checkpoints_url(setting.sweep, spec.storage),
            copies=self._copies,
        )

    def _watch(self, look: Look, now: float) -> None:
        """Note who lives, and end the leases of clients that do not."""
        self._unproven += min(now - self._looked_at, LONGEST_TURN_S)
        self._looked_at = now
        if look.server != self._server[0]:
            if now - self._server[1] <= SERVER_S:  # it lived in between
                self._clock += self._unproven
            self._server, self._unproven = (look.server, now), 0.0
        fresh: dict[str, tuple[int, float]] = {}
        for client, wish in look.wishes.items():
            looks, since = self._wishes.get(client, (wish.looks - 1, now))
            fresh[client] = (wish.looks, now) if looks != wish.looks else (looks, since)
        self._wishes = fresh
        self._wanted = sum(
            look.wishes[client].wants
            for client, (_, since) in fresh.items()
            if now - since <= WISH_S
        )
        for number, held in self._orders.items():
            if number not in look.orders:
                continue  # its last message is here, or on its way
            lease = look.orders[number]
            if lease != held.lease:
                held.lease, held.since = lease, self._clock
            elif self._clock - held.since > self._lease_s:
                held.since = self._clock
                self._turn.ended.append((lease, self._lapsed(held)))

    def _lapsed(self, held: _Held) -> Failed:
        """Return the end of an order that no client carries out."""
        cause: Cause = "infra"
        if held.lease is None or held.lease.client is None:
            cause, message = "preempt", f"no agent took it within {self._lease_s:g} s"
        else:
            client = held.lease.client
            message = f"no sign of life from agent {client} for {self._lease_s:g} s (engine.lease)"
        return Failed(self.now(), held.order.id, held.order.trial, cause, message)

    def _give_up_missing(self, look: Look) -> list[BackendEvent]:
        """Return failures of orders that somebody deleted from the database."""
        gone = []
        for number, held in self._orders.items():
            held.missed = 0 if number in look.orders or look.messages else held.missed + 1
            if held.missed > 1:  # an end between the two queries of a look is seen by the next one
                gone.append((number, held.order.trial))
        for number, _ in gone:
            del self._orders[number]
        lost = "its order is no longer in the database"
        return [Failed(self.now(), number, trial, "infra", lost) for number, trial in gone]

    def _take(self, event: BackendEvent) -> bool:
        """Note what an event says of its order; return whether the driver knows that order."""
        held = self._orders.get(event.order)
        if held is None:
            return False
        if isinstance(event, Reported):
            held.step = max(held.step, event.step)
        elif isinstance(event, Ended | Failed):
            del self._orders[event.order]
        return True
