"""How long a sweep still takes: its rest is played a few times over, at the pace of its trials.

Running trials go on at their own pace, and new ones, at the pace of earlier ones, begin on the
slots that come free. How far a trial comes is a survival curve (Kaplan & Meier 1958): of the trials
decided at a step, the share that went on. At a rung of ASHA it is one in eta, since nearly all of
the first trials there go on, which says nothing of later ones.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import accumulate
from random import Random
from statistics import mean, pstdev

from hposvc.estimate import Estimate
from hposvc.spec.registry import SCHEDULERS, trait
from hposvc.state.summary import eta_of, rung_steps
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState

KNOWN = 3  # ended trials from which on it is known how far trials come, or how long they take
PLAYS = 21
PLAYED = 60  # new trials played one by one at most; of more, the others all take the mean
PACE_SD = 0.1  # share by which the rest differs from what is known of it, at least
SD = 0.7  # share by which one trial tells it wrong

Seconds = Callable[[Random], float]  # draws how long a slot is busy
Steps = Callable[[Random], float]  # draws a step, or a number of steps


def remaining(state: SweepState) -> Estimate | None:
    """Return the seconds that a sweep still takes, as of its last event; None: not known yet."""
    if state.state != "RUNNING":
        return None
    most_s = _budget_left_s(state)
    if state.spec.trials.max is None and state.closed is None:
        return None if most_s is None else Estimate(most_s, 0.0, most_s)
    rest = _rest(state)
    if rest is None:
        return None
    estimate = rest.play(max(1, len(state.running())))
    return estimate if most_s is None else estimate.map(lambda part: min(part, most_s))


@dataclass(frozen=True)
class _Rest:
    """Work that a sweep still has to do."""

    held: Sequence[Seconds]  # of slots that are busy now
    new: Sequence[tuple[int, Seconds]]  # kinds of work that wait for a slot: how many, how long
    seen: float  # trials from which the figures are known

    def play(self, slots: int) -> Estimate:
        """Play the rest on so many slots, and return how long that takes."""
        rng = Random(0)  # the same rest takes the same time at each look
        spans = sorted(self._once(slots, rng) for _ in range(PLAYS))
        sd = math.hypot(PACE_SD, SD / math.sqrt(max(1.0, self.seen)))
        doubted = [span * max(0.1, rng.gauss(1.0, sd)) for span in spans]
        return Estimate.of_draws(doubted, spans[PLAYS // 2])

    def _once(self, slots: int, rng: Random) -> float:
        free = [seconds(rng) for seconds in self.held][:slots]
        free += [0.0] * (slots - len(free))
        heapify(free)
        for count, seconds in self.new:
            drawn = [seconds(rng) for _ in range(min(count, PLAYED))]
            if count > PLAYED:  # the others add up to their mean, spread over all slots
                others = count - PLAYED
                share = rng.gauss(mean(drawn), pstdev(drawn) / math.sqrt(others)) * others / slots
                free = [busy + share for busy in free]
            for span in drawn:
                heapreplace(free, free[0] + span)
        return max(free)


def _rest(state: SweepState) -> _Rest | None:
    """Return what a sweep still has to do; None: it is not known how far its trials come."""
    trials, spec = state.trials, state.spec
    live = trials.live()
    begun = [trial for trial in live if trial.order is not None]
    waiting = [trial for trial in live if trial.order is None]
    limit = spec.trials.max
    new = 0 if limit is None or state.closed else max(0, limit - len(trials))
    further = _seeds_left(state, new)
    each = 1 if spec.trials.seeds is None or state.noiseless else spec.trials.seeds.min
    new *= each
    paces = _Paces.of(state, begun)
    last = spec.last_step
    ended = sum(trials.ended_by_step.values())
    if paces is None or (last is None and ended < KNOWN):
        return None
    finals = _replicates_left(state) + further
    if finals and state.replicates.changed:
        return None  # they take longer than trials, nobody knows by how much
    replicates = state.replicates.trials.running()
    if last is None:
        held = [paces.rest_of(trial, _fixed(1)) for trial in [*begun, *replicates]]
        return _Rest(held, [(new + len(waiting) + finals, paces.of_new)], ended)
    to_the_end = (finals, paces.times(_fixed(last)))
    to_end = [paces.rest_of(trial, _fixed(last)) for trial in replicates]
    if eta_of(spec) and not trait(SCHEDULERS, spec.scheduler, "ends_steadily"):
        if not trait(SCHEDULERS, spec.scheduler, "promotes"):
            return None
        total = len(trials) if state.closed or limit is None else limit
        held = [paces.rest_of(trial, _fixed(trial.until or last)) for trial in begun]
        promoted = [
            (count * each, paces.times(_fixed(steps)))
            for count, steps in _promotions(state, total, begun)
        ]
        return _Rest([*held, *to_end], [*promoted, to_the_end], paces.seen)
    curve = _survival(state, last)
    if curve is None:
        return None
    held = [paces.rest_of(trial, curve.end_beyond(trial.step)) for trial in begun]
    again = [
        (1, paces.times(curve.end_beyond(trial.step, counted_from=trial.step)))
        for trial in [*waiting, *curve.paused(state)]
    ]
    fresh = (new, paces.times(curve.end_beyond(0)))
    return _Rest([*held, *to_end], [*again, fresh, to_the_end], min(curve.seen, paces.seen))


def _fixed(steps: int) -> Steps:
    """Return what always draws the same number of steps."""
    return lambda rng: steps


@dataclass(frozen=True)
class _Paces:
    """Seconds of trials per step, or of whole trials where steps are not known."""

    known: Sequence[float]
    weights: Sequence[float]  # running sums: of two trials the longer one tells more of long ones
    by_step: bool
    now: float

    @property
    def seen(self) -> float:
        """The number of trials from which they are known."""
        return len(self.known)

    @classmethod
    def of(cls, state: SweepState, running: Sequence[TrialState]) -> "_Paces | None":
        """Return the paces of running trials and of those that ended last; None: there are none."""
        by_step = state.spec.last_step is not None
        times = list(state.trials.recent_speeds)
        if by_step:
            times += [(trial.seconds_at(state.now), trial.step) for trial in running]
        times = [
            (seconds, steps if by_step else 1) for seconds, steps in times if steps or not by_step
        ]
        if not times:
            return None
        paces = [seconds / steps for seconds, steps in times]
        return cls(paces, list(accumulate(steps for _, steps in times)), by_step, state.now)

    def of_new(self, rng: Random) -> float:
        """Draw the seconds per step, or of the whole, of a new trial."""
        return rng.choices(self.known, cum_weights=self.weights)[0]

    def times(self, steps: Steps) -> Seconds:
        """Return what draws the seconds of so many steps of a new trial."""
        return lambda rng: steps(rng) * self.of_new(rng)

    def rest_of(self, trial: TrialState, until: Steps) -> Seconds:
        """Return what draws the seconds that a running trial still takes up to a step."""
        ran_s = trial.seconds_at(self.now)
        if not self.by_step:
            return lambda rng: max(0.1 * ran_s, self.of_new(rng) - ran_s)
        if not trial.step:
            return lambda rng: max(0.0, until(rng) * self.of_new(rng) - ran_s)
        return lambda rng: (until(rng) - trial.step) * ran_s / trial.step


@dataclass(frozen=True)
class _Curve:
    """The share of trials that go on beyond each of some steps, and the last step."""

    shares: Mapping[int, float]  # by step, rising
    last: int
    seen: float  # trials that they come from

    def end_beyond(self, step: int, counted_from: int = 0) -> Steps:
        """Return what draws the step at which a trial ends that goes on beyond a step."""

        def draw(rng: Random) -> float:
            beyond = ((at, share) for at, share in self.shares.items() if at > step)
            end = next((at for at, share in beyond if rng.random() >= share), self.last)
            return end - counted_from

        return draw

    def paused(self, state: SweepState) -> Sequence[TrialState]:
        """Return the paused trials, which go on; members of a population may wait for a slot."""
        if not state.trials.counts.get("PAUSED", 0):
            return ()
        return [trial for trial in state.trials.values() if trial.state == "PAUSED"]


def _survival(state: SweepState, last: int) -> _Curve | None:
    """Return how far trials come; None: too few have ended to know it."""
    ended, trials_by_step = state.trials.ended_by_step, state.trials.trials_by_step
    if not state.spec.stops_early:
        return _Curve({}, last, math.inf)
    eta = eta_of(state.spec)
    if eta is not None:
        return _Curve(dict.fromkeys(rung_steps(state.spec)[:-1], 1 / eta), last, KNOWN)
    if (count := sum(ended.values())) < KNOWN:
        return None
    shares = {}
    for step in sorted(step for step in +ended if 0 < step < last):
        came = sum(
            number for reached_step, number in trials_by_step.items() if reached_step >= step
        )
        decided = came - (trials_by_step[step] - ended[step])  # those that are there now may go on
        shares[step] = 1 - ended[step] / decided
    return _Curve(shares, last, count)


def _promotions(
    state: SweepState, total: int, begun: Sequence[TrialState]
) -> Iterator[tuple[int, int]]:
    """Yield how many trials are still to be trained from each rung to the next, and the steps.

    For schedulers that promote. Where the search finds better and better trials, more go on than
    one in eta: as many, then, as of those that have come to the rung.
    """
    eta, trials_by_step = eta_of(state.spec) or 1, state.trials.trials_by_step
    steps = rung_steps(state.spec)
    for low, high in zip((0, *steps), steps, strict=False):
        reached = sum(
            number for reached_step, number in trials_by_step.items() if reached_step >= high
        )
        under_way = sum(low <= trial.step < high for trial in begun)
        yield max(0, total - reached - under_way), high - low
        beyond = sum(number for step, number in trials_by_step.items() if step > high)
        beyond += sum(trial.step == high for trial in begun)
        total = max(1, total // eta, total * beyond // max(reached, 1))


def _replicates_left(state: SweepState) -> int:
    """Return how many replicates of the baseline and of finalists have not begun."""
    finalists = state.spec.finalists
    if finalists is None or not state.replicates.begun:
        baseline = sum(trial.state == "PENDING" for trial in state.replicates.baseline)
        return baseline + (0 if finalists is None else finalists.top * finalists.seeds)
    return state.replicates.total - state.replicates.done - len(state.replicates.trials.running())


def _seeds_left(state: SweepState, new: int) -> int:
    """Return how many seeds beyond the first ones are to be trained to the end, at today's rate."""
    seeds, best = state.spec.trials.seeds, state.best
    if seeds is None or state.noiseless or state.halted:
        return 0
    begun = [one for row in state.replicates.seeded.values() for one in row.seeds]
    further = sum(one.number >= seeds.min for one in begun)
    waiting = sum(one.state == "PENDING" for one in begun)
    lacking = seeds.max - 1 - (0 if best is None else len(state.trials[best].seeds))
    return waiting + max(0, lacking) + round(new * further / max(1, len(state.trials)))


def _budget_left_s(state: SweepState) -> float | None:
    """Return after how many seconds a limit of the budget is reached; None: not known, or none."""
    spent = state.spec.spending(state.elapsed_s, state.rank_s, state.energy_kwh).values()
    lefts = [max(0.0, limit - used) * state.elapsed_s / used for used, limit in spent if used > 0]
    return min(lefts, default=None)
