"""The claim of one sweep: which slots it holds and wants, and when it can give them back."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hposvc.backends.backend import SlotNeeds
from hposvc.queue.claim import IDLE, Claim, Held
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState

RECENT = 20  # trials from which the pace of new ones is known
HeldSlots = Sequence[tuple[Held, Sequence[int]]]  # each with the numbers of its orders


@dataclass
class ClaimBuilder:
    """Makes a sweep's claim from its state and its slots."""

    sweep: str
    user: str
    since: float  # when the sweep came to the cluster
    start_s: float = 0.0  # the longest start of a slot so far

    def build(
        self,
        state: SweepState,
        needed: int,
        slot: SlotNeeds,
        held: HeldSlots,
        max_ahead_s: float,
        now: float,
    ) -> Claim:
        """Return the claim as it is now, without the sweep's account.

        Args:
            needed: orders that the sweep could run at once.
            slot: what a new slot needs.
            max_ahead_s: see `Rules.max_ahead`.
        """
        queue, pace = state.spec.queue, _pace(state)
        slots = []
        for each, orders in held:
            trials = [trial for order in orders if (trial := state.by_order(order)) is not None]
            times = [_free_at(state, trial, pace, max_ahead_s, now) for trial in trials]
            at = max((at for at in times if at is not None), default=IDLE)
            unknown = None in times or each.starts
            slots.append(replace(each, free_at=None if unknown else at))
            self.start_s = max(self.start_s, each.start_s)
        return Claim(
            sweep=self.sweep,
            queue=queue.name,
            user=self.user,
            project=state.spec.project,
            since=self.since,
            wanted=_wanted(state, needed),
            needs=slot.needs,
            ranks=slot.ranks,
            placement=slot.placement,
            nodes=slot.nodes,
            priority=queue.priority,
            weight=queue.weight,
            preemptible=queue.preemptible,
            held=tuple(slots),
            order_s=self._order_s(state, pace, max_ahead_s),
        )

    def _order_s(self, state: SweepState, pace: float | None, max_ahead_s: float) -> float | None:
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
        work_s = max(pace * rung, min(self.start_s, max_ahead_s))
        if not again:
            return self.start_s + work_s
        # Later rungs are further apart, but a slot that is lost is given back at a step.
        saved = all(_saves_each_step(state, trial) for trial in again)
        return self.start_s + max(work_s, max_ahead_s) if saved else None


def late(
    state: SweepState, orders: frozenset[int], max_ahead_s: float, now: float
) -> frozenset[int]:
    """Return those orders whose next rung is too far, and that lose nothing at any step."""
    pace = _pace(state) if orders else None
    trials = ((order, state.by_order(order)) for order in orders)
    return frozenset(
        order
        for order, trial in trials
        if trial is not None and _is_late(state, trial, _next_rung(trial, pace), max_ahead_s, now)
    )


def _wanted(state: SweepState, needed: int) -> int:
    """Return the slots for orders that could run at once, within the spec's limits."""
    spec, at_once = state.spec, state.spec.training.orders_at_once
    wanted = -(-needed // at_once)
    if spec.queue.max_parallel is not None:
        wanted = min(wanted, spec.queue.max_parallel)
    if spec.trials.max is not None and not state.closed:
        live = len(state.running()) + len(state.trials.waiting) + len(state.trials.backing_off)
        most = live + spec.trials.max - len(state.trials)
        wanted = min(wanted, max(1, -(-most // at_once)))
    return wanted


def _free_at(
    state: SweepState, trial: TrialState, pace: float | None, max_ahead_s: float, now: float
) -> float | None:
    """Return when a trial's slot can be given back without a loss; None: unknown."""
    if trial.intent is not None or trial.awaiting is not None:
        return now
    rung_at = _next_rung(trial, pace)
    if pace is not None and _is_late(state, trial, rung_at, max_ahead_s, now):
        return now + pace
    return rung_at


def _is_late(
    state: SweepState, trial: TrialState, rung_at: float | None, max_ahead_s: float, now: float
) -> bool:
    """Whether a slot is given back at the next step, and not at its next rung."""
    too_far = rung_at is None or rung_at > now + max_ahead_s
    return too_far and _saves_each_step(state, trial)


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


def _saves_each_step(state: SweepState, trial: TrialState) -> bool:
    """Whether an order that ends at any report goes on from there."""
    return state.spec.checkpoints.interval == 1 and any(
        saved.step == trial.step for saved in trial.usable()
    )
