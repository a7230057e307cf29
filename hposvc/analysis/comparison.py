"""Which of several groups of sweeps is better at equal cost, how sure that is, and how much faster.

A group is what is compared: a searcher, a scheduler, or a sweep alone. Its runs are sweeps on the
same task with other seeds. Each run gives the loss of its best trial as a function of what it had
spent; runs of a task are compared at equal cost, the least that any of them spent in the end. Over
several tasks, losses count in units of their deviation within a task.

Runs are weighted at random: pairs (the same seed, or the same task) together, or else each group by
itself. Means of few runs vary too little in this way, so each deviation is stretched to what it is
for a mean of so few (Student's t for normal losses). Where nothing varies, the probability is that
of a test by permutation. Who is called better is corrected by Holm's method for the number of
groups.

Sources: Rubin, The Bayesian Bootstrap, The Annals of Statistics 9 (1981); Hesterberg, What Teachers
Should Know About the Bootstrap, The American Statistician 69 (2015), on few values; Welch, The
Generalization of Student's Problem, Biometrika 34 (1947), on unequal deviations;
Dror et al., The Hitchhiker's Guide to Testing Statistical Significance in NLP (ACL 2018); Demsar,
Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7 (2006), for ranks; Hansen et
al., COCO, Optimization Methods and Software 36 (2021), for the expected cost to reach a target.

Axes: D draws, N units (runs or pairs) of a group.
"""

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Array = NDArray[np.float64]
LEVEL = 0.95  # of intervals
DOUBT = 0.04  # most at which a group is called better or worse; of equal ones 5 % are then
DRAWS = 4000
FRACTIONS = (0.25, 0.5, 0.75, 1.0)  # of the equal cost
POWER = 0.8  # probability of finding a difference with as many runs as are said to be needed
ROUNDING = 1e-9  # of two means: no difference
MATCHED = 0.75  # of each group's runs must have a counterpart, or none are paired
SHORTEST = 1e-6  # of the equal cost: no target is reached sooner
Pairing = Literal["seed", "task", "none"]
Key = TypeVar("Key")


@dataclass(frozen=True)
class Run:
    """A sweep: the loss of its best trial as a function of cost."""

    sweep: str
    group: str
    task: str
    seed: int
    costs: Sequence[float]  # at which the best trial, or its loss, changed; not empty
    losses: Sequence[float]  # of the best trial from then on
    end: float  # cost of the whole sweep

    def at(self, cost: float) -> float:
        """Return the loss of the best trial at a cost; infinity: no trial had one."""
        place = bisect_right(self.costs, cost)
        return self.losses[place - 1] if place else math.inf

    def reaches(self, loss: float) -> float:
        """Return the cost at which the best trial was first as good as a loss; infinity: never."""
        pairs = zip(self.costs, self.losses, strict=True)
        return next((cost for cost, seen in pairs if seen <= loss), math.inf)


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval at LEVEL."""

    value: float
    low: float | None  # None: unknown, as there is one run only, or all runs are equal
    high: float | None


@dataclass(frozen=True)
class Standing:
    """How a group did, beside the first one."""

    name: str
    runs: Sequence[Run]  # those that count
    losses: Sequence[float]  # mean at each of FRACTIONS; NaN: several tasks, or no value yet
    loss: Interval  # mean at equal cost
    rank: Interval  # mean over pairs; 1 is the best
    lead: Interval  # of the first one's mean loss over its own: positive is better
    better: float | None  # probability that its mean loss is lower; None: unknown
    verdict: Literal["better", "worse", "open"]
    target_cost: float  # expected, to reach the target; infinity: no run reached it
    cost_ratio: Interval  # of that to the first one's


@dataclass(frozen=True)
class Sample:
    """The runs of a group, weighted at random: a unit is a run, or the runs of a pair."""

    units: Sequence[Sequence[Run]]
    sizes: Sequence[int]  # number of units of each stratum, in their order; strata count alike
    weights_DN: Array | None  # weights in each draw; None: too few units
    seed: int  # of the draws of its deviation

    @cached_property
    def base_N(self) -> Array:
        """The weight of each unit."""
        return np.repeat([1 / size / len(self.sizes) for size in self.sizes], self.sizes)

    def values(self, of: Mapping[str, float]) -> Array:
        """Return the mean value of each unit.

        Args:
            of: the value of each run, by the sweep's name.
        """
        return np.array([np.mean([of[run.sweep] for run in unit]) for unit in self.units])

    def means(self, value_N: Array) -> Array | None:
        """Return draws of the mean of a value; None: unknown."""
        if self.weights_DN is None:
            return None
        mean = float(self.base_N @ value_N)
        return self.stretched(mean, self.weights_DN @ value_N, value_N)

    def variances(self, value_N: Array) -> Array:
        """Return what each stratum adds to the variance of the mean of a value.

        A stratum whose few values are equal is taken to vary as the others do.
        """
        parts, sizes = np.split(value_N, np.cumsum(self.sizes)[:-1]), np.array(self.sizes)
        each = np.array([part.var(ddof=1) for part in parts])
        pooled = each @ (sizes - 1) / (sizes - 1).sum()
        variances: Array = np.where(each > 0, each, pooled) / sizes / len(sizes) ** 2
        return variances

    def stretched(self, estimate: float, drawn_D: Array, value_N: Array) -> Array:
        """Return draws that are as wide as the estimate is uncertain.

        Random weights vary by (n - 1)/(n + 1) of the variance, and that is known from so few units:
        the deviation is divided by a draw of what it may be, with Welch's degrees of freedom.

        Args:
            value_N: of each unit, whose mean varies as the estimate does.
        """
        variances = self.variances(value_N)
        total = float(variances.sum())
        if not 0 < total < math.inf:
            return drawn_D
        sizes = np.array(self.sizes)
        shown = float(variances @ ((sizes - 1) / (sizes + 1)))
        freedom = 1 / float((variances / total) ** 2 @ (1 / (sizes - 1)))
        squares_D = np.random.default_rng(self.seed).chisquare(freedom, DRAWS) / freedom
        stretched: Array = estimate + np.sqrt(total / shown / squares_D) * (drawn_D - estimate)
        return stretched


@dataclass(frozen=True)
class Comparison:
    """A comparison of groups; the first is what the others are held against."""

    runs: Sequence[Run]  # of tasks that all groups have; of pairs, if they are paired
    pairing: Pairing = "none"  # what the groups have in common, by which their runs are paired
    unpaired: Sequence[str] = ()  # sweeps that are left out, as they have no counterpart

    @cached_property
    def groups(self) -> list[str]:
        """The groups, in the order of their first runs."""
        return list(dict.fromkeys(run.group for run in self.runs))

    @cached_property
    def tasks(self) -> list[str]:
        return sorted({run.task for run in self.runs})

    @cached_property
    def budgets(self) -> dict[str, float]:
        """The equal cost of each task."""
        return {task: min(run.end for run in self.runs if run.task == task) for task in self.tasks}

    @cached_property
    def finals(self) -> dict[str, float]:
        """The loss of each sweep at equal cost; of one without a value, the worst of its task."""
        losses = {run.sweep: run.at(self.budgets[run.task]) for run in self.runs}
        worst = {
            task: max(
                losses[run.sweep]
                for run in self.runs
                if run.task == task and losses[run.sweep] < math.inf
            )
            for task in self.tasks
        }
        return {run.sweep: min(losses[run.sweep], worst[run.task]) for run in self.runs}

    @property
    def late(self) -> list[str]:
        """The sweeps without a value at equal cost."""
        return [run.sweep for run in self.runs if run.at(self.budgets[run.task]) == math.inf]

    @cached_property
    def scales(self) -> dict[str, tuple[float, float]]:
        """The mean and the deviation of each task's losses; of a single task, 0 and 1."""
        if len(self.tasks) == 1:
            return {self.tasks[0]: (0.0, 1.0)}
        scales = {}
        for task in self.tasks:
            losses = [self.finals[run.sweep] for run in self.runs if run.task == task]
            scales[task] = float(np.mean(losses)), float(np.std(losses)) or 1.0
        return scales

    def scaled(self, run: Run, loss: float) -> float:
        """Return a loss in units of its task."""
        centre, deviation = self.scales[run.task]
        return (loss - centre) / deviation

    @property
    def pairs(self) -> int:
        """The number of pairs; 0: runs are not paired."""
        return 0 if self.pairing == "none" else len(self.samples[self.groups[0]].units)

    @cached_property
    def samples(self) -> dict[str, Sample]:
        """The runs of each group, with their random weights."""
        if self.pairing == "none":  # by name: the answer does not depend on the order
            return {group: self._alone(group, n) for n, group in enumerate(sorted(self.groups))}
        block_of = _task_and_seed if self.pairing == "seed" else _task
        blocks = sorted({block_of(run) for run in self.runs})
        weights_DN = _weights([len(blocks)], 0)
        samples = {}
        for group in self.groups:
            mine = self._of(group)
            units = [[run for run in mine if block_of(run) == block] for block in blocks]
            samples[group] = Sample(units, [len(blocks)], weights_DN, 0)
        return samples

    def _alone(self, group: str, seed: int) -> Sample:
        """Return a group's runs, whose tasks are strata."""
        runs = sorted(self._of(group), key=lambda run: (run.task, run.sweep))
        sizes = [sum(run.task == task for run in runs) for task in self.tasks]
        return Sample([[run] for run in runs], sizes, _weights(sizes, seed), seed)

    def _of(self, group: str) -> list[Run]:
        return [run for run in self.runs if run.group == group]

    @cached_property
    def targets(self) -> dict[str, float]:
        """The loss of each task that all groups reach: the worst group's median at equal cost."""
        return {
            task: max(
                float(
                    np.median(
                        [self.finals[run.sweep] for run in self._of(group) if run.task == task]
                    )
                )
                for group in self.groups
            )
            for task in self.tasks
        }

    @cached_property
    def standings(self) -> list[Standing]:
        """How each group did."""
        first = self.groups[0]
        better = {group: self._better(group) for group in self.groups[1:]}
        called = _holm({group: each for group, each in better.items() if each is not None})
        ratios = {group: self._target_cost(group) for group in self.groups}
        return [
            Standing(
                name=group,
                runs=[run for unit in self.samples[group].units for run in unit],
                losses=self._losses(group),
                loss=_interval(*self._final(group)),
                rank=self._rank(group),
                lead=_difference(self._final(first), self._final(group)),
                better=better.get(group),
                verdict=called.get(group, "open"),
                target_cost=ratios[group][0] * self._only_budget,
                cost_ratio=_ratio(ratios[group], ratios[first]),
            )
            for group in self.groups
        ]

    def needed(self, group: str) -> int | None:
        """Return about how many runs each group needs to tell this one from the first.

        If their difference and their deviations stay what they are; None: unknown, or they do not
        differ.
        """
        mine, theirs = self.samples[group], self.samples[self.groups[0]]
        lead = self._final(self.groups[0])[0] - self._final(group)[0]
        if mine.weights_DN is None or theirs.weights_DN is None or lead == 0:
            return None
        if self.pairing == "none":
            each = [
                (s, self._values(name)) for s, name in ((mine, group), (theirs, self.groups[0]))
            ]
            variance = sum(float(sample.variances(value_N).sum()) for sample, value_N in each)
        else:
            difference_N = self._values(group) - self._values(self.groups[0])
            variance = float(mine.variances(difference_N).sum())
        level = DOUBT / (len(self.groups) - 1)
        errors = float(ndtri(POWER) - ndtri(level / 2))
        runs = min(len(mine.units), len(theirs.units))
        return max(runs + 1, math.ceil(runs * variance * (errors / lead) ** 2))

    def curve(self, group: str, fractions: Sequence[float]) -> list[Interval | None]:
        """Return a group's mean loss at fractions of the equal cost; None: a run had no value."""
        sample = self.samples[group]
        found: list[Interval | None] = []
        for fraction in fractions:
            losses = {
                run.sweep: self.scaled(run, run.at(fraction * self.budgets[run.task]))
                for unit in sample.units
                for run in unit
            }
            value_N = sample.values(losses)
            if not np.isfinite(value_N).all():
                found.append(None)
                continue
            found.append(_interval(float(sample.base_N @ value_N), sample.means(value_N)))
        return found

    @property
    def _only_budget(self) -> float:
        """The equal cost; 1 of several tasks, whose costs are shares of it."""
        return self.budgets[self.tasks[0]] if len(self.tasks) == 1 else 1.0

    def _losses(self, group: str) -> list[float]:
        means = self.curve(group, FRACTIONS[:-1])
        losses = [math.nan if mean is None else mean.value for mean in means]
        return [*losses, self._final(group)[0]]

    def _values(self, group: str) -> Array:
        losses = {run.sweep: self.scaled(run, self.finals[run.sweep]) for run in self.runs}
        return self.samples[group].values(losses)

    def _final(self, group: str) -> tuple[float, Array | None]:
        """Return a group's mean loss at equal cost, and draws of it."""
        value_N, sample = self._values(group), self.samples[group]
        return float(sample.base_N @ value_N), sample.means(value_N)

    def _better(self, group: str) -> float | None:
        """Return the probability that a group's mean loss is lower than the first one's."""
        (mine, mine_D), (theirs, theirs_D) = self._final(group), self._final(self.groups[0])
        if mine_D is None or theirs_D is None:
            return None
        lead_D, rounding = theirs_D - mine_D, ROUNDING * (abs(mine) + abs(theirs))
        if np.ptp(lead_D) > rounding:
            return float((lead_D > 0).mean())
        if abs(theirs - mine) <= rounding:
            return 0.5
        doubt = 1 / self._relabelings(group)
        return 1 - doubt if mine < theirs else doubt

    def _relabelings(self, group: str) -> int:
        """Return in how many ways runs could have been shared out between a group and the first."""
        mine, theirs = self.samples[group], self.samples[self.groups[0]]
        if self.pairing != "none":
            return 1 << len(mine.units)
        sizes = zip(mine.sizes, theirs.sizes, strict=True)
        return math.prod(math.comb(one + other, one) for one, other in sizes)

    def _rank(self, group: str) -> Interval:
        """Return a group's mean rank, by how often it is beaten; a tie is half a defeat."""
        sample, value_N = self.samples[group], self._values(group)
        beaten_N, drawn_D = np.zeros(len(value_N)), np.ones(DRAWS)
        for other in self.groups:
            if other == group:
                continue
            rival, rival_M = self.samples[other], self._values(other)
            if self.pairing != "none":
                beaten_N = beaten_N + _beaten(value_N, rival_M)
                continue
            beaten_NM = _beaten(value_N[:, None], rival_M) * self._same_task(sample, rival)
            beaten_N = beaten_N + beaten_NM @ rival.base_N
            if sample.weights_DN is not None and rival.weights_DN is not None:
                drawn_D = drawn_D + np.sum(
                    (sample.weights_DN @ beaten_NM) * rival.weights_DN, axis=1
                )
        rank = 1.0 + float(sample.base_N @ beaten_N)
        if sample.weights_DN is None or any(s.weights_DN is None for s in self.samples.values()):
            return Interval(rank, None, None)
        if self.pairing != "none":
            drawn_D = drawn_D + sample.weights_DN @ beaten_N
        # A group that won every time may still lose the next: one more unit of middle rank.
        drawn_D = sample.stretched(rank, drawn_D, beaten_N)
        unseen_D = np.random.default_rng(1).beta(1, len(sample.units), DRAWS)
        drawn_D = drawn_D + unseen_D * ((len(self.groups) + 1) / 2 - drawn_D)
        return _interval(rank, np.clip(drawn_D, 1, len(self.groups)))

    def _same_task(self, one: Sample, other: Sample) -> Array:
        """Return the weight of each pair of runs: those of different tasks do not count."""
        mine = np.array([unit[0].task for unit in one.units])
        theirs = np.array([unit[0].task for unit in other.units])
        weight: Array = (mine[:, None] == theirs) * float(len(self.tasks))
        return weight

    def _target_cost(self, group: str) -> tuple[float, Array | None]:
        """Return the expected cost to reach the target, as a share of the equal cost, and draws.

        It is what all runs spent until they reached it, or in all, by the number that reached it.
        """
        sample, spent, reached = self.samples[group], {}, {}
        for run in self.runs:
            budget = self.budgets[run.task]
            cost = run.reaches(self.targets[run.task])
            reached[run.sweep] = float(cost <= budget)
            spent[run.sweep] = min(max(cost / budget if budget else 1.0, SHORTEST), 1.0)
        spent_N, reached_N = sample.values(spent), sample.values(reached)
        spent_mean, reached_share = sample.base_N @ spent_N, sample.base_N @ reached_N
        expected = float(spent_mean / reached_share) if reached_share else math.inf
        if sample.weights_DN is None or not reached_share:
            return expected, None
        drawn_D = np.log((sample.weights_DN @ spent_N) / (sample.weights_DN @ reached_N))
        change_N = spent_N / spent_mean - reached_N / reached_share  # of the logarithm, with a unit
        drawn_D = sample.stretched(math.log(expected), drawn_D, change_N)
        return expected, np.exp(np.clip(drawn_D, -50, 50))


def compare(runs: Sequence[Run]) -> Comparison:
    """Compare groups of runs, on the tasks that all groups have; of none, all runs are one task.

    Args:
        runs: of two groups at least; every run has a loss.
    """
    shared = _common(runs, _task)
    runs = [run for run in runs if run.task in shared] or [replace(run, task="") for run in runs]
    places = _common(runs, _task_and_seed)
    paired = [run for run in runs if _task_and_seed(run) in places]
    had, kept = Counter(run.group for run in runs), Counter(run.group for run in paired)
    once = len({(run.group, *_task_and_seed(run)) for run in runs}) == len(runs)
    if once and len(places) > 1 and all(kept[group] >= MATCHED * had[group] for group in had):
        out = [run.sweep for run in runs if _task_and_seed(run) not in places]
        return Comparison(paired, "seed", out)
    tasks = {run.task for run in runs}
    alone = min(had.values()) <= len(tasks)
    return Comparison(runs, "task" if len(tasks) > 1 and alone else "none")


def _task(run: Run) -> str:
    return run.task


def _task_and_seed(run: Run) -> tuple[str, int]:
    return run.task, run.seed


def _common(runs: Sequence[Run], key: Callable[[Run], Key]) -> set[Key]:
    """Return the keys of which every group has a run."""
    groups = defaultdict(set)
    for run in runs:
        groups[key(run)].add(run.group)
    every = {run.group for run in runs}
    return {key for key, seen in groups.items() if seen == every}


def _weights(sizes: Sequence[int], seed: int) -> Array | None:
    """Return the weights of units in each draw; None: a stratum has one unit only.

    Args:
        sizes: number of units of each stratum; each stratum is weighted by itself.
    """
    if min(sizes) < 2:
        return None
    rng = np.random.default_rng([seed, 1])
    parts = [rng.dirichlet(np.ones(size), DRAWS) / len(sizes) for size in sizes]
    return np.concatenate(parts, axis=1)


def _beaten(mine: Array, theirs: Array) -> Array:
    """Return 1 where the other is better, and a half where both are equal."""
    beaten: Array = (theirs < mine) + 0.5 * (theirs == mine)
    return beaten


def _holm(better: Mapping[str, float]) -> dict[str, Literal["better", "worse", "open"]]:
    """Return which groups are called better or worse than the first, at DOUBT over all of them.

    Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of
    Statistics 6 (1979).
    """
    called: dict[str, Literal["better", "worse", "open"]] = dict.fromkeys(better, "open")
    doubts = {group: 2 * min(each, 1 - each) for group, each in better.items()}
    for rank, group in enumerate(sorted(doubts, key=lambda each: (doubts[each], each))):
        if doubts[group] > DOUBT / (len(doubts) - rank):
            break
        called[group] = "better" if better[group] > 0.5 else "worse"
    return called


def _interval(value: float, drawn_D: Array | None) -> Interval:
    if drawn_D is None or np.ptp(drawn_D) <= ROUNDING * abs(value):
        return Interval(value, None, None)
    low, high = _ends(drawn_D)
    return Interval(value, min(low, value), max(high, value))


def _difference(one: tuple[float, Array | None], other: tuple[float, Array | None]) -> Interval:
    """Return the difference of two means."""
    if one[1] is None or other[1] is None:
        return Interval(one[0] - other[0], None, None)
    return _interval(one[0] - other[0], one[1] - other[1])


def _ratio(one: tuple[float, Array | None], other: tuple[float, Array | None]) -> Interval:
    """Return the ratio of two positive costs; NaN: that to an infinite one."""
    ratio = one[0] / other[0] if other[0] < math.inf else math.nan
    return _interval(ratio, None if one[1] is None or other[1] is None else one[1] / other[1])


def _ends(drawn_D: Array) -> tuple[float, float]:
    """Return the ends of the interval at LEVEL: draws themselves, since some may be infinite."""
    low, high = np.quantile(drawn_D, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), method="inverted_cdf")
    return float(low), float(high)
