"""Drives a sweep: one loop that joins controller, backend and journal, one transaction a turn.

A turn: take what happened, let the controller answer, fill the free slots, write all of it down,
then act. A driver that dies between two turns loses nothing that anybody acted on.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from hposvc.backends.backend import Backend
from hposvc.controller import Controller
from hposvc.events import (
    Attached,
    Closed,
    Decided,
    Event,
    Failed,
    Full,
    Order,
    Ordered,
    Proposed,
    Recalled,
)
from hposvc.journal import Journal
from hposvc.lease import Lease
from hposvc.proposer import Exhausted, Proposer
from hposvc.room import Room, size
from hposvc.schedulers.scheduler import NewTrial, Over
from hposvc.state import SweepState
from hposvc.trial import trial_name
from searchers.searcher import Observation
from trainables.checkpoints import checkpoint

log = logging.getLogger("hposvc")

POLL_S = 0.2  # how often requests and the clock are looked at
HURRY_S = 0.01  # while a slot waits for a proposal
GROUP = 1000  # events of a simulation that share a transaction: nothing acts on them
AHEAD = 16  # proposals kept ready where results do not matter


class Interrupted(Exception):
    """Somebody pressed Ctrl-C, or sent SIGTERM: the sweep can be resumed."""


class Watcher(Protocol):
    """Sees the sweep as it goes: the live table, the MLflow recorder."""

    def turn(self, state: SweepState, events: Sequence[Event]) -> None:
        """Called after the events are durable."""


@dataclass
class Runner:
    """One driver's work on one sweep."""

    sweep: str
    controller: Controller
    backend: Backend
    proposer: Proposer
    journal: Journal
    lease: Lease
    watchers: Sequence[Watcher] = ()
    interrupted: Callable[[], bool] = lambda: False
    environment: Callable[[str], dict[str, str]] = lambda trial: {}
    earlier: tuple[Observation, ...] | None = None  # of sweeps to learn from; None: of none
    seq: int = 0  # of the last event in the journal, which the controller knows
    room: Room | None = None  # None: nothing is written
    _ranks: int = 0  # that a new slot has
    _warned: bool = False  # that more is kept than the quota allows
    _turn: list[Event] = field(default_factory=list)
    _unwritten: list[Event] = field(default_factory=list)
    _taken: list[int] = field(default_factory=list)  # requests that are among them
    _known: int = -1  # the outcomes that the proposer knows of
    _polled: float = 0.0
    _hungry: bool = False
    _hungry_since: float | None = None  # monotonic; None: no slot waits for a proposal

    def run(self, driver: str) -> SweepState:
        """Take the sweep over as `driver`, and bring it to its end.

        Raises:
            Interrupted: on request; the sweep can be resumed.
            Fenced: another driver took it over.
        """
        state = self.controller.state
        try:
            self._happen(Attached(self.backend.now(), driver))
            if self.earlier is not None and state.earlier is None:
                self._happen(Recalled(self.backend.now(), self.earlier))
            self._commit()
            self._limit()
            while not state.finished and state.state != "PAUSED":
                self._take_turn()
        finally:
            self.backend.close()
            self.proposer.close()
            self._write(force=True)
        return state

    def _take_turn(self) -> None:
        if self.interrupted():
            raise Interrupted
        for event in self.backend.events(HURRY_S if self._hungry else POLL_S):
            self._happen(self._located(event))
        self._poll()
        if self._known != self.controller.state.results:
            self._look_ahead()
        self._fill()
        self._commit()
        self._limit()  # not before the orders are in their slots

    def _happen(self, event: Event) -> None:
        """An event, and all that follows from it."""
        self.controller.apply(event)
        self._turn.append(event)
        for answer in self.controller.respond(event):
            self._happen(answer)

    def _located(self, event: Event) -> Event:
        """The event; where there was no room to write, with how much there is."""
        if self.room is None or not isinstance(event, Failed) or event.cause != "storage":
            return event
        return replace(event, message=f"{event.message.rstrip()}; {self.room.told()}")

    def _look_for_room(self) -> None:
        """Rest before an order fails for want of room."""
        state = self.controller.state
        ends = state.halted and not state.finals.begun
        if self.room is None or state.resting or ends:
            return
        if lacking := self.room.lacking(state.shelf.largest):
            self._happen(Full(self.backend.now(), lacking))

    def _poll(self) -> None:
        """Now and then: what people ask for, the budget, the lease."""
        now = time.monotonic()
        if now - self._polled < POLL_S and not self.backend.virtual:
            return
        for event in self.controller.expire(self.backend.now()):
            self._happen(event)
        if now - self._polled < POLL_S:
            return
        self._polled = now
        self._look_for_room()
        self.lease.renew()
        found = self.journal.requests(self.sweep)
        # The ranks have the length of a trial: the next driver's will have the new one.
        requests = [(number, one) for number, one in found if "fidelity.max" not in one.changes]
        for _, request in requests:
            self._happen(replace(request, time=self.backend.now()))
        self._taken += [number for number, _ in requests]

    def _fill(self) -> None:
        """Give every free slot something to do."""
        self._hungry = False
        state = self.controller.state
        self.backend.allow(state.spec.trials.parallel)
        now = self.backend.now()
        for event in [*self.controller.cut(now), *self.controller.widen(self._ranks, now)]:
            self._happen(event)
        for _ in range(self.backend.capacity()):
            move = self.controller.next()
            if isinstance(move, Order):
                self._order(move)
            elif not isinstance(move, NewTrial) or not self._begin_trial(move):
                break
        if not self._hungry:  # what waited was given something else
            self._hungry_since = None
        if not state.orders and isinstance(self.controller.next(), Over):
            self._happen(self.controller.finish(self.backend.now()))

    def _limit(self) -> None:
        """Slots that nothing can need any more give their resources back, or to the others."""
        closed = self.controller.state.closed is not None
        needed = self.controller.width if closed else self.backend.slots()
        self._ranks = self.backend.limit(max(1, needed))

    def _order(self, order: Order) -> None:
        """Order it, on as many ranks as a new slot has."""
        grows = len(self.controller.spec.resources.widths) > 1
        order = replace(order, workers=self._ranks) if grows else order
        self._happen(Ordered(self.backend.now(), order))

    def _begin_trial(self, move: NewTrial) -> bool:
        """Propose a trial and order its first steps; False if there is nothing to propose yet."""
        state = self.controller.state
        try:
            proposal = self.proposer.take()
        except Exhausted:
            self._happen(Closed(self.backend.now(), "space"))
            return False
        if proposal is None:
            self._hungry = True
            self._hungry_since = self._hungry_since or time.monotonic()
            return False
        since, self._hungry_since = self._hungry_since, None
        waited_s = 0.0 if since is None else time.monotonic() - since
        name = trial_name(len(state.trials) + 1)
        now = self.backend.now()
        params, note = proposal.params, proposal.note
        self._happen(Proposed(now, name, params, note, move.until, move.milestones, waited_s))
        order = self.controller.next()
        assert isinstance(order, Order)
        self._order(order)
        self._look_ahead()
        return True

    def _look_ahead(self) -> None:
        state = self.controller.state
        maximum = state.spec.trials.max
        left = AHEAD if maximum is None else maximum - len(state.trials)
        wanted = 0 if state.closed else min(left, AHEAD)
        self._known = state.results
        self.proposer.look_ahead(state.history, wanted, state.results)

    def _commit(self) -> None:
        """Write the turn down, then act on it."""
        turn, self._turn = self._turn, []
        self._unwritten += turn
        self._write(force=bool(self._taken) or not self.backend.virtual)
        self._act(turn)

    def _write(self, force: bool) -> None:
        if force or len(self._unwritten) >= GROUP:
            written, self._unwritten = self._unwritten, []
            taken, self._taken = self._taken, []
            self.seq = self.journal.append(self.sweep, self.seq, written, taken)
            for watcher in self.watchers:
                watcher.turn(self.controller.state, written)

    def _act(self, turn: Sequence[Event]) -> None:
        for event in turn:
            if isinstance(event, Ordered):
                self.backend.start(event.order, self.environment(event.order.trial))
            elif isinstance(event, Decided) and event.order is not None:
                if event.verdict == "kill":
                    self.backend.kill(event.order)
                else:
                    go_on = event.verdict == "continue"
                    self.backend.decide(event.order, "continue" if go_on else "stop")
        shelf = self.controller.state.shelf
        if shelf.over and not self._warned:
            self._warned = True
            what = "%s: checkpoints.quota is %s, and those that are still needed take %s"
            log.warning(what, self.sweep, size(shelf.quota or 0), size(shelf.size))
        dropped = shelf.dropped
        if not self.backend.virtual:
            for saved in dropped:
                try:
                    checkpoint.remove(saved)
                except OSError as error:
                    log.warning("%s can't be removed: %s", saved.path, error)
        dropped.clear()
