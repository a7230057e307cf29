"""Simulate a sweep: the real controller and scheduler, over the orders of a possible world.

Only the steps at which something can be decided are simulated, so a trial of a thousand steps costs
as much as one of three. Searchers are not asked: configurations are alike before they run.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Literal

from hposvc.analysis.forecast.beliefs import World
from hposvc.controller import stopping
from hposvc.controller.controller import Controller
from hposvc.events import (
    Attached,
    Checkpointed,
    Decided,
    Ended,
    Event,
    Failed,
    Ordered,
    Proposed,
    Reported,
)
from hposvc.schedulers.scheduler import NewTrial, SearchDone, Wait
from hposvc.spec import SweepSpec, registry
from hposvc.spec.stopping import Budget
from hposvc.state.trial import trial_name
from searchers import Finite
from trainables.contract import Order, Saved

LARGEST = 200  # trials of a simulated sweep; a larger one goes on as its later half did
MOST_POINTS = 100_000  # that a searcher proposes, which are counted
OFTEN = 8  # decisions ahead of a trial above which only some of its checkpoints are simulated
UNTIMED = 100  # trials that are forecast of a sweep whose end nobody knows
LETTERS = str.maketrans("0123456789", "ghijklmnop")  # messages with other numbers are alike
TOO_LONG = 200_000  # events of a simulated sweep that has no end in sight


@dataclass(frozen=True)
class SimulatedSweep:
    """Costs and times of one simulated sweep."""

    trials: float
    reached: Mapping[int, float]  # trials that reported each decided step, or a later one
    steps: float
    rank_s: float
    wall_s: float
    disk: float  # most bytes of checkpoints at once, with checkpoints of one byte
    failed: float
    work: int  # events that were simulated

    def plus(self, other: "SimulatedSweep", factor: float) -> "SimulatedSweep":
        """Return the outcome with a multiple of another added."""
        steps = sorted({*self.reached, *other.reached})
        return replace(
            self,
            reached={
                step: self.reached.get(step, 0.0) + factor * other.reached.get(step, 0.0)
                for step in steps
            },
            **{
                name: getattr(self, name) + factor * getattr(other, name)
                for name in ("trials", "steps", "rank_s", "wall_s", "disk", "failed")
            },
        )


@dataclass
class _Run:
    """An order under way."""

    order: Order
    stops: list[int]  # steps at which something can be decided, the last one first
    step_s: float
    step: int  # the last one done
    time: float  # at which it was done
    version: int = 0  # of its entry in the agenda: an older one is void
    failure: Failed | None = None  # that comes next, in place of the next step


def prepare(spec: SweepSpec) -> SweepSpec:
    """Return the spec without what no simulation knows: targets, limits, notifications."""
    metrics = tuple(replace(metric, target=None) for metric in spec.metrics)
    metric = None if spec.metric is None else replace(spec.metric, target=None)
    size = spec.space.size
    searcher = registry.build(registry.SEARCHERS, spec.search)
    if isinstance(searcher, Finite) and callable(searcher.points):  # it may be a user's option
        points = islice(searcher.points(spec.space), spec.trials.max or MOST_POINTS)
        size = sum(1 for _ in points)
    scheduler = spec.scheduler
    simpler = registry.attribute(registry.SCHEDULERS, scheduler, "simulated_as")
    # The same rules, but for values that are not simulated; of a user's class nothing is known.
    if isinstance(simpler, str) and ":" not in scheduler.name:
        scheduler = replace(scheduler, name=simpler)
    counts = [number for number in (spec.trials.max, size) if number is not None]
    trials = replace(spec.trials, max=min(counts, default=None))
    return replace(
        spec,
        metric=metric,
        metrics=metrics,
        limits=(),
        notify=(),
        trials=trials,
        scheduler=scheduler,
    )


def without_times(spec: SweepSpec) -> SweepSpec:
    """Return a prepared spec without its budget, which says nothing while no time is known.

    A sweep that only its budget ends gets a hundred trials.
    """
    trials = replace(spec.trials, max=spec.trials.max or UNTIMED)
    return replace(spec, trials=trials, budget=Budget())


def simulate(spec: SweepSpec, world: World, slots: int, largest: int = LARGEST) -> SimulatedSweep:
    """Return what a sweep comes to in a possible world.

    Args:
        spec: as `prepare` returns it.
        slots: orders at once.
        largest: trials up to which all are simulated; more if that were few for the slots.
    """
    most = spec.trials.max
    largest = max(largest, 8 * slots)
    if most is not None and most <= largest:
        return _Sweep(spec, world, slots).run()
    sweep = _Sweep(replace(spec, trials=replace(spec.trials, max=largest)), world, slots)
    outcome = sweep.run()
    if sweep.middle is None or sweep.full is None:  # the budget, or another rule, ended it before
        return outcome
    later_half = sweep.full.plus(sweep.middle, -1.0)
    return outcome.plus(later_half, _further(sweep, outcome, later_half, most))


def _further(
    sweep: "_Sweep", outcome: SimulatedSweep, later_half: SimulatedSweep, most: int | None
) -> float:
    """Return how many more halves like the later one the sweep has, by its trials and budget."""
    spent, more = (
        [*sweep.spec.spending(part.wall_s, part.rank_s, None).values()]
        for part in (outcome, later_half)
    )
    if most is not None:
        spent.append((sweep.spec.trials.max or 0, most))
        more.append((later_half.trials, most))
    factors = [
        (limit - used) / added
        for (used, limit), (added, _) in zip(spent, more, strict=True)
        if added > 0
    ]
    return max(min(factors, default=0.0), 0.0)


@dataclass
class _Sweep:
    spec: SweepSpec
    world: World
    slots: int
    now: float = 0.0
    controller: Controller = field(init=False)
    runs: dict[int, _Run] = field(default_factory=dict)
    agenda: list[tuple[float, int, int, int]] = field(
        default_factory=list
    )  # time, -, order, version
    resetting: int = 0  # slots between two orders
    used: int = 0  # slots that have had an order
    steps: int = 0
    most_disk: int = 0
    numbers: Iterator[int] = field(default_factory=count)
    decided_steps: set[int] = field(default_factory=set)
    tops: Counter[str] = field(default_factory=Counter)  # the last step of each trial
    qualities: dict[str, tuple[float, ...]] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)  # which of the world's configurations
    middle: SimulatedSweep | None = None  # when half of its trials had begun
    full: SimulatedSweep | None = None  # when all had

    def __post_init__(self) -> None:
        spec = self.spec
        self.controller = Controller(spec, registry.build(registry.SCHEDULERS, spec.scheduler))
        self.state = self.controller.state
        self.timed = spec.budget.limited or spec.failure.timeout is not None
        # A rule that looks at each report must see each.
        self.every_step = spec.plateau is not None
        self.last = spec.last_step or 1

    def run(self) -> SimulatedSweep:
        self.apply(Attached(0.0, "plan:0"))
        self.now = self.world.start_s
        self.fill()
        for _ in range(TOO_LONG):
            if self.state.finished:
                break
            self.turn()
        return self.outcome(self.world.close_s)

    def outcome(self, close_s: float = 0.0) -> SimulatedSweep:
        """Return what the sweep has come to by now."""
        tops = self.tops.values()
        return SimulatedSweep(
            float(len(self.state.trials)),
            {step: float(sum(top >= step for top in tops)) for step in sorted(self.decided_steps)},
            float(self.steps),
            self.state.rank_s_at(self.now),
            self.now + close_s,
            float(self.most_disk),
            float(self.state.trials.counts.get("FAILED", 0)),
            next(self.numbers),
        )

    def turn(self) -> None:
        """Go on to the next event, or to the next time at which something is due."""
        next_s = self.agenda[0][0] if self.agenda else math.inf
        due_s = self.due()
        if due_s < next_s:
            self.now = max(self.now, due_s)
        elif self.agenda:
            time, _, number, version = heapq.heappop(self.agenda)
            self.now = max(self.now, time)
            if number == 0:
                self.resetting -= 1
            elif number in self.runs and self.runs[number].version == version:
                self.go_on(self.runs[number])
            else:
                return
        else:  # the controller waits for what never comes
            self.apply(self.controller.finish(self.now))
            return
        if self.timed or due_s < next_s:  # a limit may be reached at the moment of another event
            for event in self.controller.expire(self.now):
                self.apply(event)
        self.fill()

    def due(self) -> float:
        """Return the time at which the next retry, timeout or limit of the budget comes."""
        tables = (self.state.trials, self.state.replicates.trials)
        times = [time for table in tables for time in table.backing_off.values()]
        if self.timed:
            times += self.limits()
        return min((time for time in times if time >= self.now), default=math.inf)

    def limits(self) -> list[float]:
        """Return when the budget, or the timeout of a trial, would be over as things are."""
        kept, timeout = self.spec.budget.reserve or 0.0, self.spec.failure.timeout
        here = stopping.spending(self.state, self.now).values()
        later = stopping.spending(self.state, self.now + 1.0).values()
        times = []
        for (spent, limit), (then, _) in zip(here, later, strict=True):
            # A little later: rounding must not bring the same moment again.
            times += [
                self.now + (least - spent) / (then - spent) * (1 + 1e-9) + 1e-6
                for least in {limit * (1 - kept), limit}
                if then > spent and least > spent
            ]
        if timeout is not None:
            times += [
                self.now + timeout - trial.ran_s(self.now) + 1e-6
                for trial in self.state.running()
                if trial.intent is None
            ]
        return times

    def apply(self, event: Event) -> None:
        """Apply an event, and all events with which the controller responds."""
        self.controller.apply(event)
        if isinstance(event, Decided) and event.order in self.runs and event.verdict != "continue":
            run = self.runs[event.order]
            run.version += 1  # it ends at its present step, which it may be about to do
            run.failure = None
            run.stops.clear()
            self.push(self.now, run)
        for answer in self.controller.respond(event):
            self.apply(answer)

    def fill(self) -> None:
        """Give every free slot an order, as the driver does."""
        for event in self.controller.stop_hopeless(self.now):
            self.apply(event)
        while len(self.runs) + self.resetting < self.slots and not self.state.finished:
            move = self.controller.next()
            if isinstance(move, NewTrial):
                move = self.propose(move)
            if not isinstance(move, Order):
                break
            self.apply(Ordered(self.now, move))
            self.begin(move)
        if not self.runs and isinstance(self.controller.next(), SearchDone):
            self.apply(self.controller.finish(self.now))

    def propose(self, move: NewTrial) -> Order | NewTrial | Wait | SearchDone:
        """Begin a new trial, and return the controller's next move: its first order."""
        name = trial_name(len(self.state.trials) + 1)
        changes = self.controller.scheduler.copies  # values matter only where they are changed
        params = self.spec.space.sample(self.world.rng) if changes else {}
        self.apply(Proposed(self.now, name, params, {}, move.until, move.milestones))
        self.kinds[name] = self.state.trials[name].number % len(self.world.times_N)
        trials, most = len(self.state.trials), self.spec.trials.max or 0
        if trials == most // 2:
            self.middle = self.outcome()
        elif trials == most:
            self.full = self.outcome()
        return self.controller.next()

    def begin(self, order: Order) -> None:
        """Begin an order in a slot: it may be lost on its way, or fail by its own fault."""
        world, rng = self.world, self.world.rng
        until = order.until or 1
        stops = [step for step in order.milestones if order.first <= step < until]
        if self.every_step:
            interval = self.spec.fidelity.interval if self.spec.fidelity else 1
            stops += range(-(-order.first // interval) * interval, until, interval)
        stops = sorted({*stops, until})
        self.decided_steps |= {*stops} if not self.every_step else {until, *order.milestones}
        if order.parent is not None:  # it goes on as a copy of another trial, as slow and as good
            self.kinds[order.trial] = self.kinds[order.parent]
            self.qualities[order.trial] = self.qualities[order.parent]
        begin_s = world.first_s if self.used < self.slots else world.later_s
        self.used += 1
        run = _Run(
            order,
            stops[::-1],
            float(world.times_N[self.kinds[order.trial]]),
            order.first - 1,
            self.now + begin_s,
        )
        self.runs[order.id] = run
        length = until - order.first + 1
        at_once = order.first == 1 and not order.replicate and rng.random() < world.fails_at_once
        later = rng.random() < world.fails_later * length / self.last
        if at_once or later or rng.random() < world.lost:
            cause: Literal["user", "infra"] = "user" if at_once or later else "infra"
            step = order.first if at_once else int(rng.integers(order.first, until + 1))
            # Failures are independent: no two messages are alike, so none ends the sweep as such.
            message = f"simulated {str(order.id).translate(LETTERS)}"
            run.failure = Failed(0.0, order.id, order.trial, cause, message)
            run.stops = [stop for stop in run.stops if stop < step] + [step]
            run.stops.sort(reverse=True)
        self.push_next(run)

    def push(self, time: float, run: _Run) -> None:
        heapq.heappush(self.agenda, (time, next(self.numbers), run.order.id, run.version))

    def push_next(self, run: _Run) -> None:
        """Plan the next step of a run at which something happens."""
        self.push(run.time + (run.stops[-1] - run.step) * run.step_s, run)

    def go_on(self, run: _Run) -> None:
        """Do the next step of a run, or end it."""
        order = run.order
        if not run.stops:
            self.end(run)
            return
        step = run.stops.pop()
        if run.failure is not None and not run.stops:
            self.end(run, run.failure)
            return
        if not order.replicate:
            self.tops[order.trial] = max(self.tops[order.trial], step)
        self.steps += step - run.step
        run.step, run.time = step, self.now
        if self.controller.scheduler.copies or len(run.stops) % 4 == 0 or len(run.stops) < OFTEN:
            saved = Saved(step, f"{order.trial}/{order.id}-{step}", "", 1)
            self.apply(Checkpointed(self.now, order.id, order.trial, saved))
        self.apply(Reported(self.now, order.id, order.trial, step, self.metrics(order, step)))
        self.most_disk = max(self.most_disk, self.state.checkpoints.size)
        if order.id not in self.runs:
            return
        if run.stops:
            self.push_next(run)
        elif run.version == 0:
            self.end(run)

    def end(self, run: _Run, failure: Failed | None = None) -> None:
        """End an order; its slot is free after a pause."""
        order = run.order
        del self.runs[order.id]
        how: Literal["", "returned"] = "returned" if self.spec.last_step is None else ""
        ended = Ended(self.now, order.id, order.trial, how)
        self.apply(ended if failure is None else replace(failure, time=self.now))
        if self.world.pause_s > 0:
            self.resetting += 1
            heapq.heappush(self.agenda, (self.now + self.world.pause_s, next(self.numbers), 0, 0))

    def metrics(self, order: Order, step: int) -> dict[str, float]:
        """Return the metrics of a trial at a step."""
        rng, world = self.world.rng, self.world
        if order.trial not in self.qualities:
            number = self.state.trials[order.trial].number
            speed = float(world.speeds_N[self.kinds[order.trial]])
            share = world.speed_loss
            own = rng.standard_normal(len(self.spec.objectives))
            better = world.gain * number / max(self.spec.trials.max or LARGEST, 1)
            levels = share * speed + math.sqrt(1 - share**2) * own - better
            self.qualities[order.trial] = tuple(levels)
        changing, noise = math.sqrt(1 - world.stays), world.noise
        fallen = world.fall * math.log(step)
        return {
            metric.name: metric.loss(
                world.unit
                * (
                    math.sqrt(world.stays) * level
                    + (changing + noise) * float(rng.standard_normal())
                    - fallen
                )
            )
            for metric, level in zip(self.spec.objectives, self.qualities[order.trial], strict=True)
        }
