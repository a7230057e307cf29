"""Orders on Ray: a pool of warm slots in placement groups.

Ray's callbacks put signals into a queue; `events` empties it on the driver's thread, so nothing
here is shared between threads but that queue.
"""

import queue
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, ClassVar, Literal

from hposvc.backends.backend import Answer, OutOfReach, Setting, events_of
from hposvc.backends.crew import GONE_S, hopeless, plainly
from hposvc.backends.departing import Departure, Departures, leave
from hposvc.backends.joined import FRESH_DEATHS, Joined
from hposvc.backends.slot import Signal, Slot
from hposvc.backends.widths import Widths
from hposvc.events import BackendEvent, Cause, Ended, Failed, Order
from trainables.slots.wire import Finished, Kept, Leaving, Message, Ready, Used
from trainables.slots.wire import Reported as Heard


class RayPool:
    """Slots on a Ray cluster."""

    virtual: ClassVar[bool] = False

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._signals: queue.Queue[tuple[Slot, Signal, Future[Any] | Message]] = queue.Queue()
        self._slots: list[Slot] = []
        self._started = 0
        self._deaths = 0
        self._joined = Joined(setting)
        self._place = self._joined.place()
        self._departures = Departures(setting, self._joined)
        self._each = self._place.training.batched  # orders of a slot at once
        self._widths = Widths(self._joined)
        self._ranks = self._joined.resources.ranks  # of each new slot
        self.allow(setting.spec.trials.parallel)
        self._limit = self._most

    def now(self) -> float:
        return time.time()

    def slots(self) -> int:
        return self._at_once

    def capacity(self) -> int:
        self._shrink()
        self._grow()
        if self._departures.looking:
            return 0
        running = sum(len(slot.orders) for slot in self._open())
        return min(sum(slot.room for slot in self._fit()), self._at_once - running)

    def allow(self, parallel: int | Literal["auto"]) -> None:
        self._most = self._joined.slots(parallel)
        together = self._most * self._each
        self._at_once = together if parallel == "auto" else min(together, parallel)

    def limit(self, slots: int) -> int:
        self._limit = min(-(-slots // self._each), self._most)
        self._ranks = self._widths.choose(self._limit, self._slots)
        self._shrink()
        return self._ranks

    def start(self, order: Order, environment: dict[str, str]) -> None:
        slot = max(self._fit(), key=lambda slot: slot.room)
        assert slot.room > 0  # `capacity` said so
        slot.carry_out(order, environment)

    def decide(self, order: int, verdict: Answer) -> None:
        slot = self._with(order)
        if slot is not None:
            slot.decide(order, verdict)

    def kill(self, order: int) -> None:
        slot = self._with(order)
        if slot is None:
            return
        if self._each > 1:
            slot.decide(order, "stop")  # the others in its process go on; it ends with its step
        else:
            self._close(slot, [Ended(self.now(), order, slot.orders[order].trial)])

    def events(self, timeout_s: float) -> Sequence[BackendEvent]:
        self._check()
        self._depart(self._departures.due())
        try:
            signals = [self._signals.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        while not self._signals.empty():
            signals.append(self._signals.get_nowait())
        return [event for signal in signals for event in self._handle(*signal)]

    def close(self) -> None:
        self._limit = 0
        for slot in self._slots:
            slot.close()
            if slot.crew.present == 0:
                self._forget(slot)
        deadline = time.monotonic() + GONE_S
        while self._slots and time.monotonic() < deadline:
            self.events(0.1)
        self._joined.close()

    def _check(self) -> None:
        try:
            self._joined.check()
        except OutOfReach:
            self._slots.clear()  # nobody is left to ask for their end
            raise

    def _open(self) -> list[Slot]:
        return [slot for slot in self._slots if slot.state != "closing"]

    def _fit(self) -> list[Slot]:
        """The slots that have as many ranks as new orders get."""
        return [slot for slot in self._slots if slot.resources.ranks == self._ranks]

    def _shrink(self) -> None:
        """Close idle slots beyond the limit, and those of another width."""
        for slot in self._open():
            if not slot.orders and slot.resources.ranks != self._ranks:
                self._close(slot)
        spare = len(self._open()) - self._limit
        # Slots that are not up yet go first: nothing of them is worth keeping.
        idle = [slot for slot in self._open() if not slot.orders]
        for slot in sorted(idle, key=lambda slot: slot.state == "ready")[: max(0, spare)]:
            self._close(slot)

    def _grow(self) -> None:
        """Start the slots that are missing, some at a time."""
        starting = sum(slot.state in ("placing", "starting") for slot in self._slots)
        while len(self._slots) < self._limit and starting < self._joined.at_once:
            starting += 1
            self._started += 1
            name = f"{self._setting.sweep}/slot-{self._started}"
            resources = self._joined.resources.of(self._ranks)
            place = replace(self._place, world_size=self._ranks)
            slot = Slot(name, place, resources, self._joined.board, self._post)
            self._slots.append(slot)
            slot.reserve()

    def _post(self, slot: Slot, signal: Signal, what: Future[Any] | Message) -> None:
        self._signals.put((slot, signal, what))

    def _with(self, order: int) -> Slot | None:
        return next((slot for slot in self._slots if order in slot.orders), None)

    def _handle(
        self, slot: Slot, signal: Signal, what: Future[Any] | Message
    ) -> list[BackendEvent]:
        if signal == "gone" and isinstance(what, Future):
            return self._lose_rank(slot, what)
        if slot.state == "closing":
            return []
        if not isinstance(what, Future):
            return self._hear(slot, what)
        error = what.exception()
        if error is not None:
            return self._lose(slot, f"{signal}: {plainly(error)}")
        slot.launch()
        return []

    def _hear(self, slot: Slot, message: Message) -> list[BackendEvent]:
        match message:
            case Ready():
                slot.state = "ready"
                self._deaths = 0
                self._departures.settle(slot)
                return []
            case Leaving():
                slot.leaving = message.why
                if not slot.orders:  # it had none left when it was told
                    self._close(slot)
                return []
            case Heard():
                self._departures.serve(slot, ended=False)
                self._depart(self._departures.hear(slot, message))
                return events_of(message, self.now())
            case Kept() | Used():
                return events_of(message, self.now())
            case Finished():
                del slot.orders[message.order]
                [event] = events_of(message, self.now())
                # Of several orders in a slot that leaves, each keeps what it has, and ends.
                stays = slot.orders or not slot.leaving
                if message.clean and stays and not message.residues:
                    self._departures.serve(slot, ended=True)
                    return [event]
                departures = self._departures.over(slot, event)
                reason = "its process is replaced: " + (
                    "; ".join(message.residues) or slot.leaving or "another trial in it hung"
                )
                self._close(slot, [event, *self._failures(slot, reason)])
                self._depart(departures)
        return []

    def _depart(self, departures: Sequence[Departure]) -> None:
        """Leave these nodes."""
        for departure in departures:
            for idle in leave(self._open(), departure):
                self._close(idle)

    def _lose_rank(self, slot: Slot, future: Future[Any]) -> list[BackendEvent]:
        slot.crew.present -= 1
        found: list[BackendEvent] = []
        if slot.state != "closing":
            error = future.exception()
            fresh = slot.state == "starting"
            why = plainly(error) if error else "a rank went home"
            found = self._lose(slot, why, slot.crew.rank_of(future))
            if fresh and error is not None and hopeless(error):
                self.close()
                raise OutOfReach(f"a rank could not start: {plainly(error)}") from error
        if slot.crew.present == 0:
            found += slot.farewells
            self._forget(slot)
        return found

    def _lose(self, slot: Slot, why: str, rank: int | None = None) -> list[BackendEvent]:
        """A slot broke: what its orders come to is told when all its ranks are gone."""
        if not any(other.state == "ready" for other in self._slots):
            self._deaths += 1
            if self._deaths >= FRESH_DEATHS:
                self.close()
                raise OutOfReach(f"slots die before they are ready, {self._deaths} in a row: {why}")
        departures = self._departures.lose(slot, rank)
        self._close(slot, self._failures(slot, why))
        self._depart(departures)
        return []

    def _failures(self, slot: Slot, why: str) -> list[BackendEvent]:
        """What is to be told of the orders that a slot takes with it."""
        cause: Cause = "preempt" if slot.leaving else "infra"
        why = f"{slot.leaving}; {why}" if slot.leaving else why
        held = slot.orders.values()
        return [Failed(self.now(), order.id, order.trial, cause, why) for order in held]

    def _close(self, slot: Slot, farewells: Sequence[BackendEvent] = ()) -> None:
        slot.close(farewells)
        if slot.crew.present == 0:
            self._forget(slot)

    def _forget(self, slot: Slot) -> None:
        slot.release()
        self._departures.forget(slot)
        self._slots = [other for other in self._slots if other is not slot]
