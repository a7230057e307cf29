"""The driver's main loop, which connects controller, backend and journal.

A turn of the loop takes new events from the backend, lets the controller respond, fills the free
slots, writes everything to the journal in one transaction, acts on it, and then shows it to the
watchers. A driver that dies between two turns loses nothing that was acted on.
"""

import logging
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

from hposvc.backends.backend import Answer, Backend, Lasting, OnSharedCluster
from hposvc.controller.controller import Controller
from hposvc.driver.deletions import Deletions
from hposvc.driver.disk_space import DiskSpace
from hposvc.driver.memo import Memo
from hposvc.driver.proposals import Proposer, SearchExhausted
from hposvc.driver.queue_member import QueueMember
from hposvc.driver.user_stop_rules import StopRules
from hposvc.driver.warm_start import Reports
from hposvc.errors import Interrupted, Unanswered
from hposvc.events import (
    PRIORITY,
    RENEWALS,
    Attached,
    Closed,
    Decided,
    Ended,
    Event,
    Failed,
    Ordered,
    Proposed,
    Reported,
    StorageExhausted,
    TrialAction,
    WarmStarted,
    order_of,
)
from hposvc.journal.database import retry_until_answered
from hposvc.journal.journal import Journal
from hposvc.journal.lease import Lease
from hposvc.schedulers.scheduler import NewTrial, SearchDone
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState, trial_name
from hposvc.text import format_bytes
from searchers import REPEAT_OF, Observation, Proposal
from trainables.contract import Order

log = logging.getLogger("hposvc")

POLL_S = 0.2  # seconds between checks of requests and the clock
HURRY_S = 0.01  # seconds to wait for events while a slot waits for a proposal
GROUP = 1000  # events of a simulation per transaction: nothing outside acts on them
AHEAD = 16  # proposals kept ready where results do not matter

# What a backend is told; `kill` is no answer.
ANSWERS: Mapping[TrialAction, Answer] = {
    "continue": "continue",
    "pause": "yield",
    "park": "yield",
    "stop": "stop",
}

Result = TypeVar("Result")


class Watcher(Protocol):
    """Observes a running sweep: the live table, Ray's metrics.

    Watchers are called in the loop, so slow work belongs on a thread of its own. An error of a
    watcher is logged once per type of error, and the sweep goes on.
    """

    def on_events(self, state: SweepState, events: Sequence[Event]) -> None:
        """Observe new events, perhaps none, once they are durable and were acted on."""


@runtime_checkable
class MessageListener(Protocol):
    """Receives messages about what the driver waits for."""

    def say(self, text: str) -> None:
        """Show what the driver waits for, or does before it can go on; empty: nothing."""


@dataclass
class Runner:
    """Runs the main loop of a sweep's driver."""

    sweep: str
    controller: Controller
    backend: Backend
    proposer: Proposer
    journal: Journal
    lease: Lease
    watchers: Sequence[Watcher] = ()
    rules: StopRules = field(default_factory=lambda: StopRules({}))
    interrupted: Callable[[], bool] = lambda: False
    environment: Callable[[str], dict[str, str]] = lambda trial: {}
    # Trials of warm-start sweeps; None: there are no such sweeps.
    earlier: tuple[Observation, ...] | None = None
    memo: Memo | None = None  # trainings that were recorded before; None: all are done
    seq: int = 0  # of the last event in the journal, which the controller has applied
    queue: QueueMember | None = None  # with the other sweeps on its cluster; None: it is alone
    disk_space: DiskSpace | None = None  # None: the sweep writes nothing
    only_ends: bool = False  # there are no slots: only end or pause the sweep
    attached: Callable[[], None] = lambda: None  # called once no earlier driver can write any more
    _ranks: int = 0  # of a new slot
    _quota_warned: bool = False  # that needed checkpoints exceed the quota
    _deletions: Deletions = field(init=False)
    # Pairs of index of watcher and type of error.
    _logged_errors: set[tuple[int, type[Exception]]] = field(default_factory=set)
    _recalled: set[int] = field(default_factory=set)  # orders that took recorded results
    _turn_events: list[Event] = field(default_factory=list)
    _passed: set[Hashable] = field(default_factory=set)  # skipped, as somebody had proposed them
    _unwritten: list[Event] = field(default_factory=list)
    _handled_requests: list[int] = field(default_factory=list)  # numbers of the requests among them
    _known_results: int = -1  # number of results that the proposer knows
    _polled_at: float = 0.0
    _starved: bool = False
    _starved_since: float | None = None  # monotonic; None: no slot waits for a proposal

    def __post_init__(self) -> None:
        self._deletions = Deletions(self.sweep)

    def run(self, driver: str) -> SweepState:
        """Take the sweep over as `driver`, and run it to its end.

        Raises:
            Interrupted: on request; the sweep can be resumed.
            Fenced: another driver took the sweep over.
        """
        state = self.controller.state
        with ExitStack() as ends:  # run in reverse order, each even if another raises
            ends.callback(self._deletions.close)
            ends.callback(self._finish)
            ends.callback(self.proposer.close)
            if self.queue is not None:
                ends.callback(partial(self._query, self.queue.end))
            ends.callback(self.backend.close)
            self._attach(driver)
            if self.earlier is not None and state.earlier is None:
                self._apply(WarmStarted(self.backend.now(), self.earlier))
            # Dropped by earlier drivers; `attached` deletes what is left of them.
            state.checkpoints.dropped.clear()
            self._commit()
            self._repeat_answers()
            self.attached()
            if self.queue is not None:
                self._query(self.queue.begin)
            self._release_unneeded_slots()
            while not state.finished and state.state != "PAUSED":
                self._take_turn()
        return state

    def _attach(self, driver: str) -> None:
        """Take the sweep over, and say so if the last driver's scheduler had other rules."""
        before, revision = self.controller.state.scheduler, self.controller.revision
        if before not in ("", revision):
            log.warning(
                "%s: the last driver decided by scheduler %s, this one decides by %s; what was "
                "decided stands",
                self.sweep,
                before,
                revision,
            )
        resumes = not self.only_ends
        backend, running = self.backend, self.controller.state.running()
        held = [(trial.order, trial.reached) for trial in running if trial.order is not None]
        kept = backend.adopt(held) if isinstance(backend, Lasting) else ()
        self._apply(Attached(backend.now(), driver, resumes, revision, kept))

    def _repeat_answers(self) -> None:
        """Answer adopted orders again: the last driver may have died before it did."""
        for trial in self.controller.state.running():
            order, intent = trial.order, trial.intent
            if order is None:
                continue
            if intent is not None and intent.killed:
                self.backend.kill(order.id)
            elif intent is not None:
                self.backend.decide(order.id, "stop" if intent.kind == "stop" else "yield")
            elif trial.awaiting is None and trial.reached >= order.first:
                self.backend.decide(order.id, "continue")

    def _finish(self) -> None:
        """Write events that a simulation has not written yet, and show the final state."""
        pending = self._unwritten or self._handled_requests
        self._show(self._write(force=True) if pending else ())

    def _take_turn(self) -> None:
        if self.interrupted():
            raise Interrupted
        for event in self.backend.events(HURRY_S if self._starved else POLL_S):
            if isinstance(event, Failed) and event.cause == "storage" and self.disk_space:
                free = self.disk_space.describe()
                event = replace(event, message=f"{event.message.rstrip()}; {free}")
            self._apply(self.controller.state.with_energy(event))
        self._check_periodically()
        self._ask_rules()
        if self._known_results != self.controller.state.results:
            self._look_ahead()
        self._fill_slots()
        self._commit()
        self._release_unneeded_slots()  # only after the orders are in their slots

    def _apply(self, event: Event) -> None:
        """Apply an event and, recursively, all events with which the controller responds."""
        self.controller.apply(event)
        self._turn_events.append(event)
        for answer in self.controller.respond(event):
            self._apply(answer)

    def _ask_rules(self) -> None:
        """Let the user's own rules end the sweep, if there are new results."""
        if not self.rules.is_due(self.controller.state):
            return
        self._commit()  # if a rule raises, no result is lost
        for event in self.rules.ask(self.controller.state, self.backend.now()):
            self._apply(event)

    def _check_disk_space(self) -> None:
        """Suspend the sweep if disk space runs low, before an order fails for lack of space."""
        state = self.controller.state
        ends = state.halted and not state.replicates.begun
        if self.disk_space is None or state.resting or ends:
            return
        if shortage := self.disk_space.describe_shortage(state.checkpoints.largest):
            self._apply(StorageExhausted(self.backend.now(), shortage))

    def _check_periodically(self) -> None:
        """Check timeouts, the budget, the lease and new requests, at most every `POLL_S`."""
        now = time.monotonic()
        if now - self._polled_at < POLL_S and not self.backend.virtual:
            return
        for event in self.controller.expire(self.backend.now()):
            self._apply(event)
        if now - self._polled_at < POLL_S:
            return
        self._polled_at = now
        self._check_disk_space()
        self._query(self.lease.check)
        waiting = self._query(lambda: self.journal.requests(self.sweep))
        # The present ranks know the old length of a trial; the next driver's will know the new one.
        requests = [
            (number, candidate)
            for number, candidate in waiting
            if "fidelity.max" not in candidate.changes
            if not (self.only_ends and candidate.verb in RENEWALS)  # renewals need slots
        ]
        for _, request in requests:
            event = self.controller.accept(replace(request, time=self.backend.now()))
            if event.refused:
                log.warning("%s: %s is refused: %s", self.sweep, event.verb, event.refused)
            self._apply(event)
            if event.verb == "admit":
                self.proposer.move(self.controller.state.spec)
                self._look_ahead()
        self._handled_requests += [number for number, _ in requests]

    def _fill_slots(self) -> None:
        """Order work for every free slot."""
        self._starved = False
        state = self.controller.state
        self.backend.set_parallel(state.spec.trials.parallel)
        now = self.backend.now()
        if self.queue is not None:
            self.controller.lost = self.queue.lost
            urgent, late = self.queue.interrupted, self.queue.late(state, now)
            for event in self.controller.give_back(urgent, late, now):
                self._apply(event)
        for event in [
            *self.controller.stop_hopeless(now),
            *self.controller.regrow(self._ranks, now),
        ]:
            self._apply(event)
        free = self.backend.capacity()
        while free > 0:
            recalled = len(self._recalled)
            move = self.controller.next()
            if isinstance(move, Order):
                self._place_order(move)
            elif not isinstance(move, NewTrial) or not self._begin_trial(move):
                break
            free -= recalled == len(self._recalled)  # what is recorded takes no slot
        if not self._starved:  # the slot that waited has other work now
            self._starved_since = None
        if not state.trials.orders and isinstance(self.controller.next(), SearchDone):
            self._apply(self.controller.finish(self.backend.now()))

    def _release_unneeded_slots(self) -> None:
        """Release slots that no remaining order can use, or that are other sweeps' by now."""
        state = self.controller.state
        closed = state.closed is not None
        needed = max(1, self.controller.needed_slots if closed else self.backend.slots())
        if self.queue is not None:
            look = partial(self.queue.look, state, needed)
            needed = min(needed, self._query(look))
        self._ranks = self.backend.set_slot_limit(needed)

    def _place_order(self, order: Order) -> None:
        """Record the order, with as many ranks as a new slot has if trials are elastic."""
        elastic = len(self.controller.spec.resources.allowed_workers) > 1
        order = replace(order, workers=self._ranks) if elastic else order
        if self.controller.spec.serve is not None and self.controller.spec.bounds:
            order = replace(order, awaits=True)
        if (code := self.controller.state.spec.variants) is not None:
            order = replace(order, tree=code.trees[f"{order.params[code.parameter]}"])
        recorded = None if self.memo is None else self.memo.find(self.controller.state, order)
        if recorded is not None:
            self._recall(replace(order, memo=recorded.name), recorded.reports)
        else:
            self._apply(Ordered(self.backend.now(), order))

    def _recall(self, order: Order, reports: Reports) -> None:
        """Carry out an order by recorded reports, up to a decision that ends it."""
        state, now = self.controller.state, self.backend.now()
        self._recalled.add(order.id)
        self._apply(Ordered(now, order))
        for step in sorted(reports):
            trial = state.by_order(order.id)
            ended = trial is None or trial.intent is not None
            if ended or (order.until is not None and step > order.until):
                break
            if step >= order.first:
                self._apply(Reported(now, order.id, order.trial, step, reports[step]))
        self._apply(Ended(now, order.id, order.trial, "returned" if order.until is None else ""))

    def _begin_trial(self, move: NewTrial) -> bool:
        """Propose a trial and order its first steps; False if there is nothing to propose yet."""
        state = self.controller.state
        try:
            proposal = self._take_proposal()
        except SearchExhausted:
            self._apply(Closed(self.backend.now(), "space"))
            return False
        if proposal is None:
            self._starved = True
            self._starved_since = self._starved_since or time.monotonic()
            return False
        since, self._starved_since = self._starved_since, None
        waited_s = 0.0 if since is None else time.monotonic() - since
        name = trial_name(len(state.trials) + 1)
        now = self.backend.now()
        params, note = proposal.params, proposal.note
        self._apply(Proposed(now, name, params, note, move.until, move.milestones, waited_s))
        order = self.controller.next()
        assert isinstance(order, Order)
        self._place_order(order)
        self._look_ahead()
        return True

    def _take_proposal(self) -> Proposal | None:
        """Return what people proposed if it is due, or else the searcher's next proposal, or None.

        Raises:
            SearchExhausted: neither has one left.
        """
        state = self.controller.state
        queue, begun = state.proposals, len(state.trials)
        # The spec's own points come first, as the proposer counts trials to find the next one.
        share = state.spec.trials.proposed
        after = max(queue.begins_after(0, share), len(state.spec.first_points))
        if queue.waiting and begun >= after:
            return queue.first()
        try:
            proposal = self.proposer.take()
            # A searcher that looks far ahead may not have seen what people proposed. It is asked
            # for another one once: it may be one that repeats itself.
            if proposal is not None and REPEAT_OF not in proposal.note:
                key = queue.space.key(proposal.params)
                if key in queue.begun.keys() - self._passed:
                    self._passed.add(key)
                    proposal = self.proposer.take()
        except SearchExhausted:
            if queue.waiting:
                return queue.first()
            raise
        return proposal

    def _look_ahead(self) -> None:
        state = self.controller.state
        maximum = state.spec.trials.max
        trials_left = AHEAD if maximum is None else maximum - len(state.trials)
        proposals_wanted = 0 if state.closed else min(trials_left, AHEAD)
        self._known_results = state.results
        self.proposer.look_ahead(state.history, proposals_wanted, state.results)

    def _commit(self) -> None:
        """Write the turn's events to the journal, then act on them."""
        turn, self._turn_events = self._turn_events, []
        self._unwritten += turn
        written = self._write(force=bool(self._handled_requests) or not self.backend.virtual)
        self._act_on(turn)
        self._show(written)

    def _write(self, force: bool) -> Sequence[Event] | None:
        """Write pending events to the journal, and return them; None: they wait for more events."""
        if not force and len(self._unwritten) < GROUP:
            return None
        written, self._unwritten = self._unwritten, []
        taken, self._handled_requests = self._handled_requests, []
        messages = self.backend.delivered() if isinstance(self.backend, Lasting) else ()

        def append() -> int:
            self.lease.check()
            return self.journal.append(self.sweep, self.seq, written, taken, messages)

        self.seq = self._query(append)
        return written

    def _query(self, ask: Callable[[], Result]) -> Result:
        """Query the journal, waiting while it does not answer; ranks go on working meanwhile.

        Raises:
            Interrupted: on request, while the journal did not answer.
        """
        try:
            return retry_until_answered(ask, self.sweep, self.interrupted)
        except Unanswered as error:
            if self.interrupted():
                raise Interrupted from error
            raise

    def _show(self, written: Sequence[Event] | None) -> None:
        """Show the watchers the written events; None: nothing was written."""
        if written is None:
            return
        for number, watcher in enumerate(self.watchers):
            try:
                watcher.on_events(self.controller.state, written)
            except Exception as error:  # an observer must not end the sweep
                kind = (number, type(error))
                if kind not in self._logged_errors:
                    self._logged_errors.add(kind)
                    message = f"{self.sweep}: {type(watcher).__name__} broke; the sweep goes on"
                    log.warning(message, exc_info=error)

    def _act_on(self, turn: Sequence[Event]) -> None:
        for event in turn:
            if order_of(event) in self._recalled:
                continue
            if isinstance(event, Ordered):
                environment = self._query(partial(self.environment, event.order.trial))
                self.backend.start(event.order, environment)
            elif isinstance(event, Reported):
                match self.controller.state.by_order(event.order):
                    # One that yields to a higher priority was only asked to leave by itself.
                    case TrialState(intent=intent, awaiting=None, order=Order(awaits=True)) if (
                        intent is None or intent.reason == PRIORITY
                    ):
                        self.backend.decide(event.order, "continue")
            elif isinstance(event, Decided) and event.order is not None:
                if event.verdict == "kill":
                    self.backend.kill(event.order)
                elif event.reason == PRIORITY and isinstance(self.backend, OnSharedCluster):
                    self.backend.interrupt(event.order)
                else:
                    self.backend.decide(event.order, ANSWERS[event.verdict])
        self._delete_dropped()

    def _delete_dropped(self) -> None:
        """Queue unneeded checkpoints for deletion; warn once if the rest exceeds the quota."""
        checkpoints = self.controller.state.checkpoints
        if not self.backend.virtual:
            self._deletions.delete(checkpoints.dropped)
        checkpoints.dropped.clear()
        # Checkpoints that could not be deleted are gone from the state but not from the disk.
        undeleted_bytes = self._deletions.undeleted_bytes
        if (
            checkpoints.quota is not None
            and checkpoints.size + undeleted_bytes > checkpoints.quota
            and not self._quota_warned
        ):
            self._quota_warned = True
            message = "%s: checkpoints.quota is %s, but the checkpoints still needed take %s"
            undeleted = (
                f"; {format_bytes(undeleted_bytes)} more can't be deleted"
                if undeleted_bytes
                else ""
            )
            log.warning(
                f"{message}{undeleted}",
                self.sweep,
                format_bytes(checkpoints.quota),
                format_bytes(checkpoints.size),
            )
