"""The replicates of a sweep: trials trained again with other random numbers.

At its end these are its best trials, the finalists; at its beginning the first trial, its baseline;
and where the search trains with several seeds, the second and later ones of its trials.

A replicate is a trial in a table of its own, so no scheduler or ranking sees it; a searcher sees
its result as a repeat of its trial, unless `finalists.set` gives replicates other values. Its
orders and events have the name of its finalist; the orders have its number as well.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import mean

from hposvc.events import NO_NOISE, Decided, End, Requested, TrialAction
from hposvc.state.evidence import residual
from hposvc.state.trial import TrialState
from hposvc.state.trial_table import TrialTable
from searchers import Params

UNLIKE = 3  # unlike values that two seeds do not share by chance


def common_seed(number: int) -> str:
    """Return the seed name of all trials' n-th replicates in the search; 0: of the trials."""
    return f"seed{number + 1}"


@dataclass
class Replicates:
    """All replicates; part of a sweep's state, so only events change it."""

    trials: TrialTable
    finalists: dict[str, list[TrialState]] = field(
        default_factory=dict
    )  # the replicates of each, the best trial of the search first
    baseline: list[TrialState] = field(default_factory=list)  # the replicates of the first trial
    asked: list[TrialState] = field(default_factory=list)  # by users, of any trial
    seeded: dict[str, TrialState] = field(default_factory=dict)  # with several seeds in the search
    begun: bool = False  # whether the finalists are chosen
    closed: End | None = None  # why no more replicates are trained; None: they go on
    over: bool = False  # the sweep ended after its replicates

    @property
    def changed(self) -> Params:
        """Values that differ from those of the finalists; with any, nothing is repeated."""
        finalists = self.trials.spec.finalists
        return {} if finalists is None else {**finalists.set}

    def all(self) -> Iterator[TrialState]:
        """Yield the first replicates first, so that a budget that ends cuts all trials alike."""
        for row in zip(*self.finalists.values(), strict=True):
            yield from row

    @property
    def done(self) -> int:
        """The number of replicates that came to their end, the sweep's end aside."""
        return sum(trial.over and trial.ended_from is None for trial in self.all())

    @property
    def total(self) -> int:
        """The number of planned replicates; 0 before the finalists are chosen."""
        return sum(map(len, self.finalists.values()))

    def ranked(self) -> list[str]:
        """Return the finalists that have values, the best mean first, those with one value last."""
        metric = self.trials.spec.objectives[0]
        valued = {name: values for name in self.finalists if (values := self.values(name))}
        order = {name: (len(runs) == 1, metric.loss(mean(runs))) for name, runs in valued.items()}
        return sorted(order, key=order.__getitem__)

    @property
    def best_finalist(self) -> str | None:
        """The finalist with the best mean once all are over; None: there is no result."""
        return next(iter(self.ranked()), None) if self.over else None

    def values(self, finalist: str) -> list[float]:
        """Return the results of a finalist's completed replicates, as reported."""
        completed = (
            replicate
            for replicate in self.finalists.get(finalist, ())
            if replicate.state == "COMPLETED"
        )
        return [trial.value for trial in completed if trial.value is not None]

    def losses(self) -> dict[str, tuple[tuple[int, float], ...]]:
        """Return step and loss of each trial's completed or paused replicates, for one metric.

        Replicates with other values than their trial's say nothing of it, and are left out.
        """
        losses: dict[str, tuple[tuple[int, float], ...]] = {}
        for trial in self.trials.values():
            if self.changed and not self.is_seed(trial):
                continue
            if trial.state in ("COMPLETED", "PAUSED") and trial.value is not None:
                result = (trial.step, trial.metric.loss(trial.value))
                losses[trial.shown_as] = (*losses.get(trial.shown_as, ()), result)
        return losses

    @property
    def baseline_values(self) -> list[float]:
        """The results of the baseline's completed replicates, as reported: the metric's noise."""
        completed = (trial for trial in self.baseline if trial.state == "COMPLETED")
        return [trial.value for trial in completed if trial.value is not None]

    @property
    def own_seeds(self) -> int:
        """The number of replicates of a trial that are its seeds in the search, at most."""
        seeds = self.trials.spec.trials.seeds
        return 0 if seeds is None else seeds.max - 1

    def name(self, trial: str, number: int) -> str:
        """Return the name of the n-th replicate of a trial, from 1: `t0001.1`, or `t0001.s2`."""
        own = self.own_seeds
        return f"{trial}.s{number + 1}" if number <= own else f"{trial}.{number - own}"

    def is_seed(self, replicate: TrialState) -> bool:
        """Return whether a replicate is a further seed of the search."""
        return replicate.number <= self.own_seeds

    def begin_seed(self, trial: TrialState, number: int) -> None:
        """Plan the n-th replicate of a trial, from 1, which is a seed of the search."""
        if self.name(trial.id, number) not in self.trials:
            seed = self.replicate(trial, number)
            self.trials.add(seed)
            trial.seeds.append(seed)
            self.seeded[trial.id] = trial

    def noise(self) -> float | None:
        """Return the noise of a loss among trials of equal seeds; None: it is not known yet.

        It is that of a two-way analysis of variance by trial and seed, without interaction. Zero
        only if further seeds have the curves of the first ones: equal values may be chance.
        """
        if _are_alike(self.seeded.values()):
            return 0.0
        ended = (one for one in self.seeded.values() if one.at_end and not one.exact)
        rows = [[run.own_loss for run in (one, *one.seeds)] for one in ended]
        return residual([row for row in rows if sum(map(math.isfinite, row)) > 1]) or None

    def measure(self, trial: TrialState, seeds: int) -> None:
        """Plan the replicates of the baseline; a finalist that it becomes shares them."""
        self.baseline = self.lineup([trial], seeds)[trial.id]
        for replicate in self.baseline:
            self.trials.add(replicate)

    def train_again(self, trial: TrialState, seeds: int) -> None:
        """Plan so many replicates of a trial, as a user asked for; those that it has count."""
        self.trials.reopen()
        for replicate in self.lineup([trial], seeds)[trial.id]:
            if replicate.id not in self.trials:
                self.trials.add(replicate)
            if replicate not in self.asked:
                self.asked.append(replicate)

    @property
    def baseline_trial(self) -> str | None:
        """The trial whose replicates measure the metric's noise; None: the spec has no baseline."""
        return self.baseline[0].replicate_of if self.baseline else None

    def is_baseline(self, trial: str, number: int) -> bool:
        """Return whether the n-th replicate of a trial belongs to the baseline."""
        return self.trials.get(self.name(trial, number)) in self.baseline

    def lineup(self, leaders: Iterable[TrialState], seeds: int) -> dict[str, list[TrialState]]:
        """Return the replicates of these trials, existing ones included."""
        numbers = range(self.own_seeds + 1, self.own_seeds + seeds + 1)
        return {
            finalist.id: [self.replicate(finalist, number) for number in numbers]
            for finalist in leaders
        }

    def planned(self, leaders: Sequence[TrialState], seeds: int) -> bool:
        """Return whether the baseline has all replicates that these trials need."""
        every = (replicate.id for row in self.lineup(leaders, seeds).values() for replicate in row)
        return bool(leaders) and all(name in self.trials for name in every)

    def replicate(self, finalist: TrialState, number: int) -> TrialState:
        """Return the n-th replicate of a trial, from 1; a new one until it is part of the table."""
        name = self.name(finalist.id, number)
        changed = self.changed if number > self.own_seeds else {}
        return self.trials.get(name) or TrialState(
            id=name,
            objectives=finalist.objectives,
            limits=finalist.limits,
            ends_at_limit=finalist.ends_at_limit,
            params={**finalist.reported_params, **changed},
            note={},
            until=self.trials.spec.last_step,
            milestones=(),
            number=number,
            replicate_of=finalist.id,
        )

    def begin(self, leaders: Iterable[TrialState], seeds: int) -> None:
        """Choose the finalists; replicates of other trials need no checkpoints any more."""
        if self.begun:
            return
        dropped, self.finalists, self.begun = self.finalists, self.lineup(leaders, seeds), True
        for name in dropped.keys() - self.finalists.keys():
            for trial in dropped[name]:
                if trial.order is None:
                    self.trials.checkpoints.forget(trial)
        self._add()

    def admit(self, finalist: TrialState, seeds: int) -> None:
        """Take in a finalist that is trained again, as an earlier rule of the best chose it."""
        if finalist.id not in self.finalists:
            self.finalists |= self.lineup([finalist], seeds)
            self._add()

    def _add(self) -> None:
        for trial in self.all():
            if trial.id not in self.trials:
                self.trials.add(trial)

    def reopen(self) -> None:
        """Let the search go on: finalists are chosen again later, and failures are forgiven."""
        self.begun, self.over, self.closed = False, False, None
        for trial in self.failed():
            if not self.is_seed(trial):
                self.trials.retry(trial)
        self.trials.reopen()

    def clear(self, time: float) -> None:
        """Remove all replicates, also of the baseline, because trials are longer from now on."""
        self.trials.lose_orders(time)  # their driver is gone: it could not make trials longer
        for trial in self.trials.values():
            self.trials.checkpoints.forget(trial)
        self.trials = self.trials.emptied()
        self.finalists, self.baseline, self.asked = {}, [], []

    def failed(self, finalist: str | None = None) -> list[TrialState]:
        """Return the replicates that failed, of a finalist or of all, and may be tried again.

        Seeds of a trial that did not come to its end may not: a rung has judged it.
        """
        failed = (trial for trial in self.trials.values() if trial.state == "FAILED")
        return [
            trial
            for trial in failed
            if finalist in (None, trial.replicate_of)
            and not trial.excluded
            and (not self.is_seed(trial) or self.seeded[trial.shown_as].at_end)
        ]

    def retry(self, finalist: str | None) -> None:
        """Train failed replicates again, of a finalist or of all, and those that were cut off."""
        self.over, self.closed = False, None
        for trial in self.failed(finalist):
            self.trials.retry(trial)  # from scratch: it has no checkpoints any more
        self.trials.reopen()

    def end(self, event: Requested) -> None:
        """End the waiting replicates of a trial that somebody ended; others are told to end."""
        for trial in self.trials.values():
            if trial.replicate_of == event.trial and trial.state == "PENDING":
                verdict: TrialAction = "kill" if event.verb == "kill" else "stop"
                decided = Decided(event.time, trial.id, None, trial.step, verdict, "user")
                self.trials.decide(trial, decided)


def _are_alike(trials: Iterable[TrialState]) -> bool:
    """Return whether further seeds have the curves of the first ones: of three trials, or two."""
    values: set[float] = set()
    few, alike = False, set[str]()  # whether a training reports once or twice; trials
    for trial in trials:
        for seed in trial.seeds:
            if seed.at_end or seed.reason == NO_NOISE:
                if any(trial.steps.get(step) != value for step, value in seed.steps.items()):
                    return False
                values |= {*seed.steps.values()}
                few = few or len(seed.steps) < UNLIKE
                alike.add(trial.id)
    enough = 2 if few else UNLIKE
    return len(alike) >= enough and len(values) >= enough
