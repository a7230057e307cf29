"""Judge a sweep by the values of its trials: its best, the default, noise and gain."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hposvc.analysis.gain import Gain, gain
from hposvc.analysis.noise import HUGE, Noise, of_curves, of_repeats
from hposvc.analysis.prospects import LEARNING, PACES, Prospect, prospect
from hposvc.analysis.shrinkage import Expectations, Expected, expectations
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState

NEXT = 20  # trials whose gain is forecast, at least
GUESSED = 0.9  # the most that is believed if nothing was trained twice


@dataclass(frozen=True)
class Judged:
    """A sweep with one metric. Losses: lower is better."""

    state: SweepState

    @cached_property
    def losses(self) -> dict[str, float]:
        """The losses of the trials that came to their ends, which alone can be compared."""
        trials = self.state.trials.values()
        return {trial.id: trial.loss for trial in trials if trial.at_end and abs(trial.loss) < HUGE}

    @cached_property
    def repeats(self) -> dict[str, list[float]]:
        """The losses of new runs of some trials, with other random numbers."""
        metric, replicates = self.state.spec.objectives[0], self.state.replicates
        values = {name: replicates.values(name) for name in replicates.finalists}
        if replicates.baseline:
            values[replicates.baseline[0].shown_as] = replicates.baseline_values
        losses = {
            name: [metric.loss(value) for value in found if abs(value) < HUGE]
            for name, found in values.items()
        }
        return {name: found for name, found in losses.items() if found}

    @cached_property
    def runs(self) -> dict[str, list[float]]:
        """The losses of each trial's complete runs: its own first, if it came to its end.

        Trials that repeat another one are runs of that one.
        """
        runs = {name: [loss] for name, loss in self.losses.items() if self.first(name) == name}
        for name, losses in (*self.repeats.items(), *self._trials_again.items()):
            runs.setdefault(self.first(name), []).extend(losses)
        return runs

    def first(self, trial: str) -> str:
        """Return the trial whose configuration a trial repeats; itself, if it repeats none."""
        return self.state.trials[trial].repeat_of or trial

    @cached_property
    def noise(self) -> Noise | None:
        """The noise of the metric; None: nothing tells it."""
        trials = self.state.trials.values()
        curves = [
            [value for _, value in trial.curve]
            for trial in trials
            if trial.id in self.losses and all(abs(value) < HUGE for _, value in trial.curve)
        ]
        # Not the loss of a trial that was repeated: it may have been so because it was lucky. Only
        # where it was repeated once is there nothing else to compare with.
        again = [
            [self.losses[name], *losses] if len(losses) == 1 and name in self.losses else losses
            for name, losses in self._trials_again.items()
        ]
        return of_repeats([*self.repeats.values(), *again]) or of_curves(curves)

    @cached_property
    def _trials_again(self) -> dict[str, list[float]]:
        """The losses of trials that repeat another one, by that one."""
        again: dict[str, list[float]] = {}
        for name, loss in self.losses.items():
            if (first := self.first(name)) != name:
                again.setdefault(first, []).append(loss)
        return again

    @property
    def best(self) -> TrialState | None:
        """The best trial."""
        return None if self.state.best is None else self.state.trials[self.state.best]

    @cached_property
    def default(self) -> TrialState | None:
        """The first trial, if it can be compared: the first of `initial`, where that is given.

        One that was stopped can be compared by its new runs, which go to the end.
        """
        first = next(iter(self.state.trials.values()), None)
        return first if first is not None and first.id in self.runs else None

    @cached_property
    def default_runs(self) -> Sequence[float]:
        """The losses of the default that no choice of the best has touched."""
        if self.default is None:
            return []
        name = self.default.id
        if name in self.state.replicates.finalists or name in self._trials_again:
            return [*self.repeats.get(name, ()), *self._trials_again.get(name, ())]
        return self.runs[name]

    @cached_property
    def runner_up(self) -> str | None:
        """The trial with the next best value of another configuration, or the next finalist."""
        best = None if self.best is None else self.best.id
        means = {name: sum(runs) / len(runs) for name, runs in self.repeats.items()}
        if len(means) < 2 or best not in means:
            means = self.losses
        known = None if best is None else self.first(best)
        others = {name: loss for name, loss in means.items() if self.first(name) != known}
        return min(others, key=lambda name: others[name], default=None)

    @cached_property
    def expectations(self) -> Expectations | None:
        """The values that trials would have on average; None: the noise is not known."""
        if self.noise is None:
            return None
        return expectations(self.runs, self.noise)

    @property
    def expected(self) -> Expected | None:
        """The expected loss of the best trial; None: the noise is not known."""
        name, known = self.best_runs, self.expectations
        return None if name is None or known is None else known.of(name)

    @property
    def best_runs(self) -> str | None:
        """The trial by whose runs the best one is judged; None: no noise, or no complete run."""
        known = self.expectations
        if known is None or self.best is None:
            return None
        first = self.first(self.best.id)
        return first if first in known.names else None

    def better_than(self, other: str | None) -> float | None:
        """Return the probability that the best is really better than another; None: unknown.

        Without new runs the noise is a guess, so neither answer has more than GUESSED.
        """
        pair = self._pair(other)
        if pair is None or self.expectations is None:
            return None
        chance = self.expectations.better(*pair)
        return chance if self.measured else min(max(chance, 1 - GUESSED), GUESSED)

    def as_good_as(self, other: str | None) -> float | None:
        """Return the probability that the best and another are equally good; None: unknown."""
        pair = self._pair(other)
        if pair is None or self.expectations is None:
            return None
        return self.expectations.equal(*pair)

    def _pair(self, other: str | None) -> tuple[str, str] | None:
        """Return the trials by whose runs the best and another are compared, if they can be."""
        best, known = self.best_runs, self.expectations
        if known is None or best is None or other is None:
            return None
        rival = self.first(other)
        return (best, rival) if rival != best and rival in known.names else None

    @property
    def measured(self) -> bool:
        """Whether the noise comes from equal runs."""
        return self.noise is not None and self.noise.measured

    @cached_property
    def gain(self) -> Gain | None:
        """The test of the best finalist against the default; None: too little was run twice.

        Without finalists every trial that came to its end is a rival, with one run, or with those
        of the trials that repeat it.
        """
        default = None if self.default is None else self.default.id
        rivals = [runs for name, runs in self.repeats.items() if name != default]
        trials = [
            self._trials_again.get(name, [loss])
            for name, loss in self.losses.items()
            if name != default and self.first(name) == name
        ]
        return gain(rivals or trials, self.default_runs)

    @cached_property
    def prospect(self) -> Prospect | None:
        """The forecast of what a fifth as many trials again, or NEXT at least, would gain."""
        known = self.losses if self.expectations is None else self.expectations.means()
        ended = [trial for trial in self.state.trials.values() if trial.over]
        losses = [known.get(self.first(trial.id), math.inf) for trial in ended]
        pace = PACES.get(self.state.spec.search.name, LEARNING)
        return prospect(losses, max(NEXT, len(ended) // 5), pace)

    @property
    def prospect_rank_s(self) -> float | None:
        """The rank-seconds that those trials take if they are like the others; None: no idea."""
        ended = [trial.rank_s for trial in self.state.trials.values() if trial.over]
        if self.prospect is None or not sum(ended):
            return None
        return self.prospect.trials * sum(ended) / len(ended)
