"""Which of several groups of sweeps is better at equal cost, how sure that is, and how much faster.

A group is what is compared: a searcher, a scheduler, or a sweep alone. Its runs are sweeps on the
same task with other seeds. Each run gives the loss of its best trial as a function of what it had
spent; runs of a task are compared at equal cost, the least that any of them spent in the end. Over
several tasks, losses count in units of their deviation within a task.

Of pairs (the same seed, or the same task) the differences are averaged, or else each group by
itself; the doubt about a mean of so few is that of Student's t. Other figures are taken to vary as
means of their first-order changes with each unit do. Where nothing varies, the probability is that
of a test by permutation. Who is called better is corrected by Holm's method for the number of
groups.

Sources: Welch, The Generalization of Student's Problem, Biometrika 34 (1947), on unequal
deviations; Efron, The Jackknife, the Bootstrap and Other Resampling Plans (1982), chapter 6, on
first-order changes; Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scandinavian
Journal of Statistics 6 (1979);
Dror et al., The Hitchhiker's Guide to Testing Statistical Significance in NLP (ACL 2018); Demsar,
Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7 (2006), for ranks; Hansen et
al., COCO, Optimization Methods and Software 36 (2021), for the expected cost to reach a target.

Axes: N and M units (runs or pairs) of groups.
"""

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import scipy

from hposvc.analysis.judgement import DRAWS, GUESSED, Array, Judgement, judge
from hposvc.estimate import Estimate
from hposvc.state.sweep import SweepState

DOUBT = 0.04  # most at which a group is called better or worse; of equal ones 5 % are then
FRACTIONS = (0.25, 0.5, 0.75, 1.0)  # of the equal cost
POWER = 0.8  # probability of finding a difference with as many runs as are said to be needed
ROUNDING = 1e-9  # of two means: no difference
MATCHED = 0.75  # of each group's runs must have a counterpart, or none are paired
SHORTEST = 1e-6  # of the equal cost: no target is reached sooner
Pairing = Literal["seed", "task", "none"]
Key = TypeVar("Key")


@dataclass(frozen=True)
class SweepRun:
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


class Mean(NamedTuple):
    """A mean of runs, or a difference of two, whose error is distributed as Student's t."""

    value: float
    error: float  # standard error; NaN: unknown
    freedom: float  # degrees of freedom of the error

    @classmethod
    def of(cls, value: float, terms: Sequence[tuple[float, int]] | None) -> "Mean":
        """Add up terms of the variance with their degrees of freedom, as Welch does.

        SciPy does it for two samples, not for strata of several tasks.
        """
        total = math.nan if terms is None else sum(variance for variance, _ in terms)
        if terms is None or not 0 < total < math.inf:
            return cls(value, 0.0 if total == 0 else math.nan, math.nan)
        freedom = 1 / sum((variance / total) ** 2 / freedom for variance, freedom in terms)
        return cls(value, math.sqrt(total), freedom)

    @property
    def estimate(self) -> Estimate:
        """The mean with its interval; unknown: there is one run only, or all are equal."""
        if not self.error > ROUNDING * abs(self.value):
            return Estimate(self.value)
        return Estimate.of_mean(*self)


@dataclass(frozen=True)
class Standing:
    """How a group did, beside the first one."""

    name: str
    runs: Sequence[SweepRun]  # those that count
    losses: Sequence[float]  # mean at each of FRACTIONS; NaN: several tasks, or no value yet
    loss: Estimate  # mean at equal cost
    rank: Estimate  # mean over pairs; 1 is the best
    lead: Estimate  # of the first one's mean loss over its own: positive is better
    better: float | None  # probability that its mean loss is lower; None: unknown
    verdict: Literal["better", "worse", "open"]
    target_cost: float  # expected, to reach the target; infinity: no run reached it
    cost_ratio: Estimate  # of that to the first one's


@dataclass(frozen=True)
class Sample:
    """The runs of a group: a unit is a run, or the runs of a pair."""

    units: Sequence[Sequence[SweepRun]]
    sizes: Sequence[int]  # number of units of each stratum, in their order; strata count alike

    @cached_property
    def weight_N(self) -> Array:
        """The weight of each unit."""
        return np.repeat([1 / size / len(self.sizes) for size in self.sizes], self.sizes)

    def values(self, of: Mapping[str, float]) -> Array:
        """Return the mean value of each unit.

        Args:
            of: the value of each run, by the sweep's name.
        """
        return np.array([np.mean([of[run.sweep] for run in unit]) for unit in self.units])

    def terms(self, value_N: Array, unseen: Sequence[float] = ()) -> list[tuple[float, int]] | None:
        """Return what each stratum adds to the variance of the mean, and its degrees of freedom.

        A stratum whose few values are equal is taken to vary as the others do. None: one has a
        single value.

        Args:
            unseen: values that each stratum is taken to have, too.
        """
        if min(self.sizes) < 2:
            return None
        parts = np.split(value_N, np.cumsum(self.sizes)[:-1])
        parts = [np.append(part, unseen) for part in parts]
        each, freedom = (
            [float(part.var(ddof=1)) for part in parts],
            [len(part) - 1 for part in parts],
        )
        pooled = float(np.dot(each, freedom)) / sum(freedom)
        return [
            ((variance or pooled) / (free + 1) / len(parts) ** 2, free)
            for variance, free in zip(each, freedom, strict=True)
        ]

    def mean(self, value_N: Array) -> Mean:
        """Return the mean of a value."""
        return Mean.of(float(self.weight_N @ value_N), self.terms(value_N))


# A figure of a group, and how it changes with each of its units, to the first order.
Figure = tuple[float, Array]


@dataclass(frozen=True)
class Comparison:
    """A comparison of groups; the first is what the others are held against."""

    runs: Sequence[SweepRun]  # of tasks that all groups have; of pairs, if they are paired
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
        finite = [run for run in self.runs if losses[run.sweep] < math.inf]
        worst = {
            task: max(losses[run.sweep] for run in finite if run.task == task)
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

    def scaled(self, run: SweepRun, loss: float) -> float:
        """Return a loss in units of its task."""
        centre, deviation = self.scales[run.task]
        return (loss - centre) / deviation

    @property
    def pairs(self) -> int:
        """The number of pairs; 0: runs are not paired."""
        return 0 if self.pairing == "none" else len(self.samples[self.groups[0]].units)

    @cached_property
    def samples(self) -> dict[str, Sample]:
        """The runs of each group; without pairs, its tasks are strata."""
        block_of: Callable[[SweepRun], object] = _task_and_seed if self.pairing == "seed" else _task
        blocks = sorted({block_of(run) for run in self.runs}, key=repr)
        samples = {}
        for group in self.groups:
            mine = [run for run in self.runs if run.group == group]
            units = [[run for run in mine if block_of(run) == block] for block in blocks]
            samples[group] = Sample(units, [len(blocks)])
            if self.pairing == "none":
                runs = [[run] for unit in units for run in unit]
                samples[group] = Sample(runs, [len(unit) for unit in units])
        return samples

    @cached_property
    def targets(self) -> dict[str, float]:
        """The loss of each task that all groups reach: the worst group's median at equal cost."""
        losses: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for run in self.runs:
            losses[run.task][run.group].append(self.finals[run.sweep])
        return {
            task: max(float(np.median(values)) for values in losses[task].values())
            for task in self.tasks
        }

    @cached_property
    def standings(self) -> list[Standing]:
        """How each group did."""
        first = self.groups[0]
        better = {group: self._better(group) for group in self.groups[1:]}
        called = _holm({group: each for group, each in better.items() if each is not None})
        only_budget = self.budgets[self.tasks[0]] if len(self.tasks) == 1 else 1.0
        return [
            Standing(
                name=group,
                runs=[run for unit in self.samples[group].units for run in unit],
                losses=[
                    math.nan if mean is None else mean.value
                    for mean in self.curve(group, FRACTIONS[:-1])
                ]
                + [self._final(group)[0]],
                loss=self.samples[group].mean(self._final(group)[1]).estimate,
                rank=self._rank(group),
                lead=self._difference(self._final, first, group).estimate,
                better=better.get(group),
                verdict=called.get(group, "open"),
                target_cost=math.exp(self._log_target_cost(group)[0]) * only_budget,
                cost_ratio=self._cost_ratio(group),
            )
            for group in self.groups
        ]

    def needed(self, group: str) -> int | None:
        """Return about how many runs each group needs to tell this one from the first.

        If their difference and their deviations stay what they are; None: unknown, or they do not
        differ.
        """
        lead = self._difference(self._final, self.groups[0], group)
        if math.isnan(lead.error) or lead.value == 0:
            return None
        level = DOUBT / (len(self.groups) - 1)
        errors = float(scipy.stats.norm.ppf(POWER) - scipy.stats.norm.ppf(level / 2))
        runs = min(len(self.samples[name].units) for name in (group, self.groups[0]))
        return max(runs + 1, math.ceil(runs * (lead.error * errors / lead.value) ** 2))

    def curve(self, group: str, fractions: Sequence[float]) -> list[Estimate | None]:
        """Return a group's mean loss at fractions of the equal cost; None: a run had no value."""
        sample = self.samples[group]
        runs = [run for unit in sample.units for run in unit]
        curve: list[Estimate | None] = []
        for fraction in fractions:
            losses = {
                run.sweep: self.scaled(run, run.at(fraction * self.budgets[run.task]))
                for run in runs
            }
            value_N = sample.values(losses)
            curve.append(sample.mean(value_N).estimate if np.isfinite(value_N).all() else None)
        return curve

    def _final(self, group: str) -> Figure:
        """Return a group's mean loss at equal cost."""
        losses = {run.sweep: self.scaled(run, self.finals[run.sweep]) for run in self.runs}
        value_N = self.samples[group].values(losses)
        return float(self.samples[group].weight_N @ value_N), value_N

    def _difference(self, of: Callable[[str], Figure], one: str, other: str) -> Mean:
        """Return the difference of a figure between two groups."""
        (mine, mine_N), (theirs, theirs_M) = of(one), of(other)
        if self.pairing != "none":
            return Mean.of(mine - theirs, self.samples[one].terms(mine_N - theirs_M))
        terms, others = self.samples[one].terms(mine_N), self.samples[other].terms(theirs_M)
        both = None if terms is None or others is None else [*terms, *others]
        return Mean.of(mine - theirs, both)

    def _better(self, group: str) -> float | None:
        """Return the probability that a group's mean loss is lower than the first one's."""
        lead = self._difference(self._final, self.groups[0], group)
        if math.isnan(lead.error):
            return None
        rounding = ROUNDING * sum(abs(self._final(name)[0]) for name in (group, self.groups[0]))
        if lead.error > rounding:
            return float(scipy.stats.t.cdf(lead.value / lead.error, lead.freedom))
        if abs(lead.value) <= rounding:
            return 0.5
        doubt = 1 / self._relabelings(group)
        return 1 - doubt if lead.value > 0 else doubt

    def _relabelings(self, group: str) -> int:
        """Return in how many ways runs could have been shared out between a group and the first."""
        mine, theirs = self.samples[group], self.samples[self.groups[0]]
        if self.pairing != "none":
            return 1 << len(mine.units)
        sizes = zip(mine.sizes, theirs.sizes, strict=True)
        return math.prod(math.comb(one + other, one) for one, other in sizes)

    def _rank(self, group: str) -> Estimate:
        """Return a group's mean rank, by how often it is beaten; a tie is half a defeat."""
        sample, (_, value_N), most = self.samples[group], self._final(group), len(self.groups)
        beaten_N = np.zeros(len(value_N))
        terms: list[tuple[float, int]] | None = []
        for other in self.groups:
            if other == group:
                continue
            rival, (_, rival_M) = self.samples[other], self._final(other)
            if self.pairing != "none":
                beaten_N = beaten_N + _beaten(value_N, rival_M)
                continue
            tasks = [[unit[0].task for unit in each.units] for each in (sample, rival)]
            same_NM = np.equal.outer(*map(np.array, tasks)) * float(len(self.tasks))
            beaten_NM = _beaten(value_N[:, None], rival_M) * same_NM
            beaten_N = beaten_N + beaten_NM @ rival.weight_N
            theirs = rival.terms(sample.weight_N @ beaten_NM, [0.5])
            terms = None if terms is None or theirs is None else [*terms, *theirs]
        # A group that won every time may still lose the next: one more unit of middle rank.
        mine = sample.terms(beaten_N, [(most - 1) / 2])
        terms = None if terms is None or mine is None else [*terms, *mine]
        rank = 1.0 + float(sample.weight_N @ beaten_N)
        return Mean.of(rank, terms).estimate.map(lambda value: float(np.clip(value, 1.0, most)))

    def _log_target_cost(self, group: str) -> Figure:
        """Return the logarithm of the expected cost to reach the target, in equal costs.

        It is what all runs spent until they reached it, or in all, by the number that reached it.
        """
        sample, spent, reached = self.samples[group], {}, {}
        for run in self.runs:
            budget = self.budgets[run.task]
            cost = run.reaches(self.targets[run.task])
            reached[run.sweep] = float(cost <= budget)
            spent[run.sweep] = min(max(cost / budget if budget else 1.0, SHORTEST), 1.0)
        spent_N, reached_N = sample.values(spent), sample.values(reached)
        mean, share = float(sample.weight_N @ spent_N), float(sample.weight_N @ reached_N)
        if not share:
            return math.inf, np.zeros(len(spent_N))
        return math.log(mean / share), spent_N / mean - reached_N / share

    def _cost_ratio(self, group: str) -> Estimate:
        """Return the expected cost to reach the target by the first group's; NaN: that is infinite.

        If a group has no run that reached it, there is no interval.
        """
        if math.isinf(self._log_target_cost(self.groups[0])[0]):
            return Estimate(math.nan)
        ratio = self._difference(self._log_target_cost, group, self.groups[0])
        if math.isinf(ratio.value):
            return Estimate(math.inf)
        return ratio.estimate.map(lambda log: math.exp(np.clip(log, -100, 100)))


def compare(runs: Sequence[SweepRun]) -> Comparison:
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


def _task(run: SweepRun) -> str:
    return run.task


def _task_and_seed(run: SweepRun) -> tuple[str, int]:
    return run.task, run.seed


def _common(runs: Sequence[SweepRun], key: Callable[[SweepRun], Key]) -> set[Key]:
    """Return the keys of which every group has a run."""
    groups = defaultdict(set)
    for run in runs:
        groups[key(run)].add(run.group)
    every = {run.group for run in runs}
    return {key for key, seen in groups.items() if seen == every}


def _beaten(mine: Array, theirs: Array) -> Array:
    """Return 1 where the other is better, and a half where both are equal."""
    beaten: Array = (theirs < mine) + 0.5 * (theirs == mine)
    return beaten


def _holm(better: Mapping[str, float]) -> dict[str, Literal["better", "worse", "open"]]:
    """Return which groups are called better or worse than the first, at DOUBT over all of them."""
    called: dict[str, Literal["better", "worse", "open"]] = dict.fromkeys(better, "open")
    doubts = {group: 2 * min(each, 1 - each) for group, each in better.items()}
    for rank, group in enumerate(sorted(doubts, key=lambda each: (doubts[each], each))):
        if doubts[group] > DOUBT / (len(doubts) - rank):
            break
        called[group] = "better" if better[group] > 0.5 else "worse"
    return called


@dataclass(frozen=True)
class BestConfiguration:
    """The best configuration of a sweep, beside that of the first one."""

    sweep: str
    trial: str
    runs: int  # new runs with other random numbers
    expected: float  # loss, if it is trained again
    better: float | None  # probability that it is better than the first one's; None: the first
    measured: bool  # whether the noise comes from equal runs, in all sweeps


def compare_bests(states: Mapping[str, SweepState]) -> list[BestConfiguration] | str:
    """Compare the best configurations of sweeps with one metric; or return why they can't be.

    It is for sweeps that ran only once. What each best trial would give if it was trained again
    comes from its sweep's noise and repeats, pulled towards the sweep's other trials, since it was
    chosen for looking best.

    Args:
        states: of the sweeps by their ids.
    """
    judged = {sweep: judge(state) for sweep, state in states.items()}
    measured = all(judgement.measured for judgement in judged.values())
    rng = np.random.default_rng(0)
    bests: list[BestConfiguration] = []
    first_D: Array | None = None
    for sweep, judgement in judged.items():
        loss_D = _draws_of_best(judgement)
        if judgement.best is None or isinstance(loss_D, str):
            return f"in {sweep}, {loss_D}"
        loss_D, chance = rng.permutation(loss_D), None  # all draws come from the same numbers
        if first_D is None:
            first_D = loss_D
        else:
            chance = float((loss_D < first_D).mean() + (loss_D == first_D).mean() / 2)
            chance = chance if measured else min(max(chance, 1 - GUESSED), GUESSED)
        again = len(judgement.runs.get(judgement.first(judgement.best.id), ())[1:])
        mean = float(loss_D.mean())
        bests.append(BestConfiguration(sweep, judgement.best.id, again, mean, chance, measured))
    return bests


def _draws_of_best(judged: Judgement) -> Array | str:
    """Return draws of the loss that the best trial would give again; or why they are unknown."""
    best, noise, known = judged.best, judged.noise, judged.expectations
    if best is None:
        return "there is no best trial"
    if noise is None:
        return "how far equal runs differ is not known (`baseline: {seeds: 5}` measures it)"
    if noise.deviation == 0:
        return np.full(DRAWS, best.loss)
    if known is None or judged.configuration is None:
        return "too few trials came to their ends"
    return known.draws(judged.configuration)
