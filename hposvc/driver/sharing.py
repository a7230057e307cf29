"""The sweep's part in the queue: its claim, the share that follows, and who waits for whom.

`hposvc/queue/shares.py` computes the shares of all sweeps from their claims in the journal. Here
the claim of one sweep is made from its state and its slots, and its account is kept: nobody else
writes either.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hposvc.backends.backend import Backend, OnSharedCluster, SlotNeeds
from hposvc.errors import SpecError
from hposvc.journal import claims
from hposvc.journal.claims import ClaimRow
from hposvc.journal.lease import Lease
from hposvc.journal.waiting import SweepWait
from hposvc.queue.allocation import total_of
from hposvc.queue.claim import IDLE, Account, Claim, Held
from hposvc.queue.fair import size
from hposvc.queue.gangs import FreeResources, Nodes
from hposvc.queue.quotas import Quotas, quotas_of
from hposvc.queue.rules import Rules
from hposvc.queue.shares import Shortage, SlotShare, shares
from hposvc.spec import SweepSpec
from hposvc.state.remaining import remaining
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState

log = logging.getLogger("hposvc")

LOOK_S = 0.5  # between two looks at the claims, at least
BUSY = 0.05  # share of its time that a driver looks at them, at most
TELL_S = 10.0  # between two texts about the same wait
WRITE_S = 5.0  # at most, between two writes of the own claim
RULES_S = 10.0  # between two looks at the operator's rules
KEPT = 20  # half-lives after which the account of a sweep that has ended is deleted
LOOKS = 6  # in all of which something outside the sweeps must hold a resource, to count
LONGEST_S = 10.0  # between two looks, for which a sweep is charged: a clock may jump
AWAY_S = 600.0  # without a driver, for which at most a sweep is made up
RECENT = 20  # trials from which the pace of new ones is known


@dataclass
class Sharing:
    """Keeps the sweep's claim, and knows its share."""

    lease: Lease
    spec: SweepSpec  # as first recorded
    user: str
    backend: OnSharedCluster
    clock: Callable[[], float] = time.time  # the driver's, by which events are dated
    share: SlotShare = field(default_factory=SlotShare)
    rules: Rules = field(default_factory=Rules)
    lost: frozenset[int] = frozenset()  # orders whose slots are to be given back
    interrupted: frozenset[int] = frozenset()  # of these, those that are not to wait for a rung
    _cluster: str = ""
    _unread: set[str] = field(default_factory=set)  # sweeps whose claims can't be read
    _next_look: float = 0.0  # monotonic seconds
    _looked_at: float | None = None  # in seconds of the epoch; None: not yet
    _written: dict[str, Any] | None = None  # the claim; None: not yet
    _lasting: object = None  # what of it is written at once when it changes
    _written_at: float = 0.0
    _rules_at: float = 0.0
    _since: float = field(default_factory=time.time)
    _idle_since: float = field(default_factory=time.time)  # when it last had a slot, or began
    _told: SweepWait | None = None  # what the sweep waits for, as it was last said; None: nothing
    _told_at: float = 0.0
    _start_s: float = 0.0  # the longest start of a slot
    _account: Account = field(default_factory=Account)
    _outside: deque[dict[str, dict[str, float]]] = field(
        default_factory=lambda: deque(maxlen=LOOKS)
    )

    @classmethod
    def of(cls, lease: Lease, spec: SweepSpec, user: str, backend: Backend) -> "Sharing | None":
        """Return the part of a sweep in the queue; None: its backend is its own."""
        if not isinstance(backend, OnSharedCluster):
            return None
        return cls(lease, spec, user, backend, backend.now)

    def begin(self) -> None:
        """Go on with the sweep's account.

        If its driver died, its sweep wanted slots meanwhile: it keeps its place in the queue, and
        what was due to it.
        """
        now, store = self.clock(), self.lease.store
        self._read_rules(now)
        self._cluster = self.backend.cluster()
        claims.drop_before(store, now - KEPT * self.rules.half_life)
        row = claims.find(store, self.lease.sweep)
        before = None if row is None else Claim.read(row.claim)
        if row is None or before is None:
            return
        self._account = before.account.at_time(now, self.rules.half_life)
        if before.wanted:
            away_s = min(max(0.0, now - row.written), AWAY_S)
            self._account = self._account.charge(0.0, row.share.get("due", 0.0) * away_s)
            self._since = before.since

    def look(self, state: SweepState, needed: int) -> int:
        """Look at the claims as they are now, and return how many orders may run by the share.

        Args:
            needed: orders that the sweep could run at once.
        """
        began, at_once = time.monotonic(), self.spec.training.trials_per_process
        worked_s = time.thread_time()  # a busy machine makes a look longer, but not dearer
        if began < self._next_look or not self.backend.answers:
            return self.share.slots * at_once
        now = self.clock()
        wanted = -(-needed // at_once)
        self._read_rules(now)
        held, slot, (whole, free) = (
            self.backend.held(),
            self.backend.new_slot(),
            self.backend.room(),
        )
        mine = self._make_claim(state, wanted, held, slot, now)
        rows = claims.read(self.lease.store, self._cluster)
        claims_of = {row.sweep: _present(row) for row in rows if row.sweep != self.lease.sweep}
        others = [claim for claim in claims_of.values() if claim is not None]
        for sweep in claims_of.keys() - self._unread:
            if claims_of[sweep] is None:
                self._unread.add(sweep)
                log.warning("%s: its claim is of another version, and counts as none", sweep)
        nodes = self._nodes([mine, *others], whole, free)
        self._charge(mine, nodes, now)
        mine = replace(mine, account=self._account)
        answer = shares([mine, *others], nodes, self.rules, now, whole)
        self.share = answer.get(self.lease.sweep, SlotShare())
        if any(quota.amounts for _, _, quota in quotas_of(mine, self.rules)):
            self.share = replace(self.share, crowded=True)  # wider slots might exceed it
        orders = {each.slot: numbers for each, numbers in held}
        self.lost = frozenset(order for slot in self.share.lost for order in orders[slot])
        self.interrupted = self._victims(state, held)
        self._idle_since = now if held else self._idle_since
        self._tell(self.share.wait, slot.text, now)
        told = "" if self._told is None else self._told.describe()
        missing = self._missing(state, [mine, *others])
        self.backend.apply_share(self.share, told, missing)
        self._write(mine, state, now)
        pause_s = (time.thread_time() - worked_s) / BUSY
        self._next_look = began + min(max(LOOK_S, pause_s), LONGEST_S)
        return self.share.slots * at_once

    def late(self, state: SweepState, now: float) -> frozenset[int]:
        """Return the lost orders whose next rung is too far, and that lose nothing at any step."""
        pace = _pace(state) if self.lost else None
        trials = ((order, state.by_order(order)) for order in self.lost)
        return frozenset(
            order
            for order, trial in trials
            if trial is not None and self._is_late(state, trial, _next_rung(trial, pace), now)
        )

    def _is_late(
        self, state: SweepState, trial: TrialState, rung_at: float | None, now: float
    ) -> bool:
        """Whether a slot is given back at the next step, and not at its next rung."""
        too_far = rung_at is None or rung_at > now + self.rules.max_ahead
        return too_far and saves_each_step(state, trial)

    def end(self) -> None:
        """Give up the sweep's claim; its account stays."""
        if self._written is not None:
            account = asdict(self._account)
            claims.write(
                self.lease,
                self._cluster,
                {**self._written, "wanted": 0, "held": [], "account": account},
                {},
            )

    def _read_rules(self, now: float) -> None:
        if not 0.0 <= now - self._rules_at < RULES_S:
            self._rules_at = now
            try:
                self.rules = Rules.of(claims.read_rules(self.lease.store))
            except SpecError as error:  # of a server of another version
                log.warning("the operator's rules of the queue can't be read: %s", error)

    def _make_claim(
        self,
        state: SweepState,
        wanted: int,
        held: Sequence[tuple[Held, Sequence[int]]],
        slot: SlotNeeds,
        now: float,
    ) -> Claim:
        queue, pace = state.spec.queue, _pace(state)
        if queue.max_parallel is not None:
            wanted = min(wanted, queue.max_parallel)
        if state.spec.trials.max is not None:
            live = len(state.running()) + len(state.trials.waiting) + len(state.trials.backing_off)
            most = live + state.spec.trials.max - len(state.trials)
            slots_of_all = -(-most // self.spec.training.trials_per_process)
            wanted = wanted if state.closed else min(wanted, max(1, slots_of_all))
        slots = []
        for each, orders in held:
            trials = [trial for order in orders if (trial := state.by_order(order)) is not None]
            times = [self._free_at(state, trial, pace, now) for trial in trials]
            at = max((at for at in times if at is not None), default=IDLE)
            unknown = None in times or each.starts
            slots.append(replace(each, free_at=None if unknown else at))
            self._start_s = max(self._start_s, each.start_s)
        return Claim(
            sweep=self.lease.sweep,
            queue=queue.name,
            user=self.user,
            project=self.spec.project,
            since=self._since,
            wanted=wanted,
            needs=slot.needs,
            ranks=slot.ranks,
            placement=slot.placement,
            nodes=slot.nodes,
            priority=queue.priority,
            weight=queue.weight,
            preemptible=queue.preemptible,
            held=tuple(slots),
            order_s=self._order_s(state, pace),
            account=self._account,
        )

    def _order_s(self, state: SweepState, pace: float | None) -> float | None:
        """Return how long a new order keeps its slot, until it can be given back; None: unknown.

        Never less than it may take: slots that stayed longer than they said, in room that is kept
        for a gang, would put off its start again and again.
        """
        spec = state.spec
        rung = spec.first_step if spec.stops_early else spec.last_step
        if pace is None or rung is None:
            return None
        again = [trial for name in state.trials.waiting if (trial := state.trials[name]).step]
        # A new slot stays for as long as it took to start, `max_ahead` at most.
        work_s = max(pace * rung, min(self._start_s, self.rules.max_ahead))
        if not again:
            return self._start_s + work_s
        # Later rungs are further apart, but a slot that is lost is given back at a step.
        saved = all(saves_each_step(state, trial) for trial in again)
        return self._start_s + max(work_s, self.rules.max_ahead) if saved else None

    def _free_at(
        self, state: SweepState, trial: TrialState, pace: float | None, now: float
    ) -> float | None:
        """Return when a trial's slot can be given back without a loss; None: unknown."""
        if trial.intent is not None or trial.awaiting is not None:
            return now
        rung_at = _next_rung(trial, pace)
        if pace is not None and self._is_late(state, trial, rung_at, now):
            return now + pace
        return rung_at

    def _nodes(self, all_claims: Sequence[Claim], nodes: Nodes, free: Nodes) -> Nodes:
        """Return the resources of each node, without what others than the sweeps hold."""
        room = FreeResources.of(nodes)
        for claim in all_claims:
            for held in claim.held:
                room.take(held.nodes, claim.needs)
        outside = {
            node: {
                # Ray leaves out what is used up on a node.
                name: max(0.0, left - free[node].get(name, 0.0)) if node in free else 0.0
                for name, left in amounts.items()
            }
            for node, amounts in room.nodes.items()
        }
        # A slot that was placed a moment ago is not in its sweep's claim yet.
        self._outside.append(outside)
        return {
            node: {
                name: amount - min(each.get(node, {}).get(name, 0.0) for each in self._outside)
                for name, amount in amounts.items()
            }
            for node, amounts in nodes.items()
        }

    def _charge(self, mine: Claim, nodes: Nodes, now: float) -> None:
        """Add to the account what the sweep had, and what was due to it, since the last look."""
        account = self._account.at_time(now, self.rules.half_life)
        if self._looked_at is not None:
            passed_s = min(max(0.0, now - self._looked_at), LONGEST_S)
            total = total_of(nodes)
            start, work = (
                sum(size(mine.needs, each.ranks, total) for each in mine.held if each.starts == new)
                for new in (True, False)
            )
            if math.isfinite(work + start):  # a node of its slots has gone
                due, contested = self.share.due, self.share.contested
                account = account.charge_slots(work, start, due, contested, passed_s)
        self._account, self._looked_at = account, now

    def _missing(self, state: SweepState, all_claims: Sequence[Claim]) -> int:
        """Return for how many slots new nodes are to be asked for.

        These are the ones that the sweep's quotas permit beyond its share; with `auto`, which means
        as many as there is room for, one while it has none.
        """
        mine, quotas = all_claims[0], Quotas(self.rules)
        for claim in all_claims:
            for held in claim.held:
                quotas.take(claim, held.ranks)
        most = len(mine.held)
        while most < mine.wanted and not quotas.refusal(mine, mine.ranks):
            quotas.take(mine, mine.ranks)
            most += 1
        missing = max(0, most - max(self.share.slots, len(mine.held)))
        if state.spec.trials.parallel == "auto":
            return 0 if self.share.slots or mine.held else min(1, missing)
        return missing

    def _victims(
        self, state: SweepState, held: Sequence[tuple[Held, Sequence[int]]]
    ) -> frozenset[int]:
        """Return the orders to interrupt: on the nodes in question, those of the least worth."""
        named = {*self.share.interrupted}
        victims: set[int] = set()
        for nodes in {tuple(sorted(each.nodes.items())) for each, _ in held if each.slot in named}:
            there = [
                (each, orders)
                for each, orders in held
                if orders and tuple(sorted(each.nodes.items())) == nodes
            ]
            count = sum(each.slot in named for each, _ in there)
            there.sort(key=lambda pair: max(worth(state, order) for order in pair[1]))
            victims.update(order for _, orders in there[:count] for order in orders)
        return frozenset(victims)

    def _tell(self, wait: Shortage | None, what: str, now: float) -> None:
        """Say what the sweep waits for: at once if it begins to wait, and later now and then."""
        if wait is None or (self._told is not None and now - self._told_at < TELL_S):
            self._told = None if wait is None else self._told
            return
        until = wait.until if wait.until is not None and wait.until > now + 1 else None
        self._told, self._told_at = (
            SweepWait(what, self._idle_since, wait.behind, until, wait.reason),
            now,
        )

    def _write(self, mine: Claim, state: SweepState, now: float) -> None:
        """Write the claim if it has changed, or has not been written for a while."""
        claim = asdict(mine)
        share = {
            "due": round(self.share.due, 3),
            "slots": self.share.slots,
            "wait": None if self._told is None else self._told.data(),
        }
        lasting = (_lasting(claim), share)
        if lasting == self._lasting and now - self._written_at < WRITE_S:
            return
        rest = remaining(state)
        told = {
            "money": state.money,
            "currency": state.spec.price.currency,
            "ends_at": None if rest is None else now + rest.value,
        }
        claims.write(self.lease, self._cluster, claim, {**share, **told})
        self._written, self._written_at, self._lasting = claim, now, lasting


def _present(row: ClaimRow) -> Claim | None:
    """Return a row's claim; a sweep without a driver holds and wants nothing."""
    claim = Claim.read(row.claim)
    return claim if claim is None or row.live else replace(claim, wanted=0, held=())


def _lasting(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a claim of which every change is written at once."""
    held = [each["slot"] for each in claim["held"]]
    return {**claim, "held": held, "account": None, "order_s": None}


def _next_rung(trial: TrialState, pace: float | None) -> float | None:
    """Return when a running trial comes to its next rung, or its end; None: unknown.

    Args:
        pace: seconds of a step in other trials; None: unknown.
    """
    order = trial.order
    if order is None:
        return None
    step, at = max(trial.reached, order.first - 1), trial.ordered_at
    if trial.reported is not None:
        at = trial.reported[1]
        pace = (at - trial.ordered_at) / max(1, step - order.first + 1)
    ends = [end for end in (*order.milestones, order.until) if end is not None and end > step]
    return None if pace is None or not ends else at + pace * (min(ends) - step)


def _pace(state: SweepState) -> float | None:
    """Return the seconds of a step in the last trials; None: no trial has reported."""
    trials = [state.trials[name] for name in [*state.trials][-RECENT:]]
    steps = sum(trial.reached for trial in trials)
    return sum(trial.seconds_at(state.now) for trial in trials) / steps if steps else None


def saves_each_step(state: SweepState, trial: TrialState) -> bool:
    """Whether an order that ends at any report goes on from there."""
    return state.spec.checkpoints.interval == 1 and any(
        saved.step == trial.step for saved in trial.usable()
    )


def worth(state: SweepState, order: int) -> float:
    """Return the share of the sweep's trials that were no better at an order's last step.

    A trial that has no value yet has one half, and a replicate of a finalist is worth more than
    any trial.
    """
    trial = state.by_order(order)
    if trial is None or trial.replicate_of is not None:
        return 1.0
    if not trial.step:
        return 0.5
    mine = trial.loss_at(trial.step)
    others = [other for other in state.trials.values() if other.step >= trial.step]
    return sum(mine <= other.loss_at(trial.step) for other in others) / max(1, len(others))
