"""Sweeps, or groups of sweeps, compared: figures, sentences and a chart. docs/compare.md explains.

The figures come from hposvc/analysis/comparison.py. What is not known is said to be unknown.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hposvc.analysis import devices
from hposvc.analysis.amounts import amount, share
from hposvc.analysis.best_configurations import BestConfigurations, compare_bests
from hposvc.analysis.comparison import (
    FRACTIONS,
    LEVEL,
    Comparison,
    Interval,
    Standing,
)
from hposvc.analysis.comparison import compare as compare_runs
from hposvc.api import OpenSweep
from hposvc.errors import SpecError, fail
from hposvc.reporting.chart import Chart
from hposvc.reporting.charts import comparison as chart
from hposvc.reporting.comparable import (
    Cost,
    Entry,
    check,
    differing_keys,
    doubts,
    group_names,
    shown,
    usual_groups,
)
from hposvc.spec import Metric
from hposvc.text import NONE, duration, finite, number

PROBABLY = 0.8  # probability from which a group is called probably better


@dataclass(frozen=True)
class Row:
    """A group's row in the table of a comparison, as texts for people."""

    name: str
    sweeps: str
    trials: str
    cost: str
    best: str
    value: str  # at equal cost
    rank: str
    better: str
    ratio: str


@dataclass(frozen=True)
class Compared:
    """A comparison of sweeps; the first group is what the others are held against."""

    entries: Sequence[Entry]
    groups: Mapping[str, str]  # group of each sweep
    by: Sequence[str]  # keys of the spec that make the groups; empty: each sweep is one
    cost: Cost
    figures: Comparison
    bests: BestConfigurations | str | None  # or why nothing is known; None: not asked

    @property
    def metric(self) -> Metric:
        return self.entries[0].spec.objectives[0]

    @property
    def unit(self) -> str:
        """The unit of costs."""
        unit = self.entries[0].history.cost_unit
        return {"hours": unit, "trials": "trials", "time": "seconds"}[self.cost]

    @property
    def alone(self) -> bool:
        """Whether nothing can be said of luck: no group but the first has enough sweeps."""
        return all(standing.better is None for standing in self.figures.standings)

    @cached_property
    def left_out(self) -> list[str]:
        """The sweeps that do not count."""
        counted = {run.sweep for standing in self.figures.standings for run in standing.runs}
        return [entry.id for entry in self.entries if entry.id not in counted]

    @cached_property
    def warnings(self) -> list[str]:
        """Reasons to doubt the comparison."""
        problems = doubts(self.entries, self.by, self.cost)
        if unlike := devices.describe([entry.history.state for entry in self.entries]):
            problems.append(unlike)
        if self.left_out:
            names = ", ".join(self.left_out)
            problems.append(f"Left out, having no value or no counterpart in each group: {names}.")
        if self.figures.late:
            names = ", ".join(self.figures.late)
            problems.append(f"At equal cost without a value, so counted as the worst: {names}.")
        for standing in self.figures.standings:
            seeds = Counter((run.task, run.seed) for run in standing.runs)
            (_, seed), most = seeds.most_common(1)[0]
            if most > 1:
                problems.append(
                    f"{most} sweeps of {standing.name} have seed {seed}, so they may repeat each "
                    "other; give each another `seed`."
                )
        return problems

    @cached_property
    def sentences(self) -> list[str]:
        """Sentences on which is better, with which probability, and how much faster."""
        if self.alone:
            return [self._standing_alone(), *self._best_configurations(), self._faster()]
        ranks = [self._ranks()] if len(self.figures.groups) > 2 else []
        return [self._better(), *self._unknown(), self._faster(), *ranks, *self._needed()]

    @property
    def rows(self) -> list[Row]:
        """The table for people."""
        first = self.figures.groups[0]
        return [
            Row(
                name=standing.name,
                sweeps=f"{len(standing.runs)}",
                trials=f"{sum(e.history.started_trials for e in self._of(standing.name)):,}",
                cost=self._spent(sum(entry.end(self.cost) for entry in self._of(standing.name))),
                best=number(self._best(standing.name)),
                value=NONE if self._several else number(self.metric.loss(standing.loss.value)),
                rank=_with_ends(standing.rank),
                better=NONE if standing.better is None else share(standing.better),
                ratio="1" if standing.name == first else _with_ends(standing.cost_ratio),
            )
            for standing in self.figures.standings
        ]

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The names of the fields of a row, with their titles."""
        first = self.figures.groups[0]
        spent = "time" if self.cost == "time" else self.unit
        return [
            *(("name", ", ".join(self.by) or "sweep"), ("sweeps", "sweeps"), ("trials", "trials")),
            *([] if self.cost == "trials" else [("cost", spent)]),
            *(("best", "best"), ("value", f"at {self.equal_cost}"), ("rank", "mean rank")),
            *(("better", f"better than {first}"), ("ratio", "cost to target")),
        ]

    @property
    def equal_cost(self) -> str:
        """The cost at which values are compared, for people."""
        budgets = [*self.figures.budgets.values()]
        return "equal cost" if len(budgets) > 1 else self._cost(budgets[0])

    @cached_property
    def chart(self) -> Chart:
        """Best so far of all groups."""
        unit = self.unit
        return chart.build(self.figures, self.metric, self.cost, unit, self.sentences[0])

    def data(self) -> dict[str, Any]:
        """Return the comparison as JSON; docs/compare.md documents it."""
        figures, metric = self.figures, self.metric
        budgets, targets = [*figures.budgets.values()], [*figures.targets.values()]
        return {
            "metric": metric.name,
            "goal": metric.goal,
            "by": [*self.by],
            "cost": self.cost,
            "unit": self.unit,
            "equal_cost": None if self._several else budgets[0],
            "target": None if self._several else metric.loss(targets[0]),
            "tasks": len(figures.tasks),
            "paired_by": None if figures.pairing == "none" else figures.pairing,
            "pairs": figures.pairs,
            "confidence": LEVEL,
            "fractions": [*FRACTIONS],
            "groups": [self._group(standing) for standing in figures.standings],
            "best_configurations": self._configurations(),
            "left_out": self.left_out,
            "sentences": self.sentences,
            "warnings": self.warnings,
        }

    @property
    def _several(self) -> bool:
        """Whether values are of several tasks, whose units differ."""
        return len(self.figures.tasks) > 1

    def _of(self, group: str) -> list[Entry]:
        """Return the sweeps of a group that count."""
        out = {*self.left_out}
        return [e for e in self.entries if self.groups[e.id] == group and e.id not in out]

    def _best(self, group: str) -> float:
        """Return the best value of a group at its own cost."""
        bests = (entry.history.improvements[-1].value for entry in self._of(group))
        return min(bests, key=self.metric.loss)

    def _cost(self, cost: float) -> str:
        return shown(cost, self.cost, self.entries[0].history.cost_unit)

    def _spent(self, spent: float) -> str:
        """Return a cost in the column of its unit."""
        return duration(spent) if self.cost == "time" else amount(spent)

    def _group(self, each: Standing) -> dict[str, Any]:
        loss = self.metric.loss
        ends = sorted(loss(end) for end in (each.loss.low, each.loss.high) if end is not None)
        low, high = ends or (None, None)
        values = [None if math.isnan(value) else loss(value) for value in each.losses]
        return {
            "name": each.name,
            "sweeps": [run.sweep for run in each.runs],
            "trials": sum(entry.history.started_trials for entry in self._of(each.name)),
            "spent": sum(entry.end(self.cost) for entry in self._of(each.name)),
            "best": self._best(each.name),
            "values": None if self._several else values,
            "value": None
            if self._several
            else {"mean": loss(each.loss.value), "low": low, "high": high},
            "rank": _data(each.rank),
            "lead": _data(each.lead),
            "better": each.better,
            "verdict": each.verdict,
            "target_cost": finite(each.target_cost),
            "cost_ratio": _data(each.cost_ratio),
        }

    def _configurations(self) -> list[dict[str, Any]] | None:
        if self.bests is None or isinstance(self.bests, str):
            return None
        return [
            {
                "sweep": best.sweep,
                "trial": best.trial,
                "runs": best.runs,
                "expected": self.metric.loss(best.loss),
                "better": best.better,
                "measured": self.bests.measured,
            }
            for best in self.bests.each
        ]

    def _better(self) -> str:
        """Say which groups are better than the first."""
        first, *others = self.figures.standings
        parts = [
            f"{self._stands(each, first)} (probability of being better: {share(each.better)})"
            f"{self._values(each, first)}"
            for each in sorted(others, key=lambda each: each.verdict == "open")
            if each.better is not None
        ]
        return f"At equal cost ({self._basis()}), {'; '.join(parts)}."

    def _unknown(self) -> list[str]:
        """Say of which groups it can't be told whether they are better."""
        few = [standing.name for standing in self.figures.standings[1:] if standing.better is None]
        if not few:
            return []
        names = " and ".join(few)
        return [f"One sweep of {names} can't tell skill from luck: run more, with other seeds."]

    def _stands(self, each: Standing, first: Standing) -> str:
        """Say how a group stands to the first."""
        if each.verdict != "open":
            return f"{each.name} is {each.verdict} than {first.name}"
        chance = each.better or 0.0
        if chance > PROBABLY:
            return f"{each.name} is probably better than {first.name}, but not surely"
        if chance < 1 - PROBABLY:
            return f"{each.name} is probably worse than {first.name}, but not surely"
        return f"{each.name} and {first.name} can't be told apart"

    def _values(self, each: Standing, first: Standing) -> str:
        if self._several:
            return ""
        loss = self.metric.loss
        return f": {number(loss(each.loss.value))} against {number(loss(first.loss.value))}"

    def _basis(self) -> str:
        """Say what the comparison rests on."""
        where = "of each task" if self._several else self.equal_cost
        pairs = {
            "seed": f"{self.figures.pairs} pairs of equal seeds",
            "task": f"{self.figures.pairs} pairs of equal tasks",
            "none": "sweeps not paired",
        }
        return f"{where}; {pairs[self.figures.pairing]}"

    def _faster(self) -> str:
        """Say who reaches the target sooner."""
        first, *others = self.figures.standings
        what = "the worst group's median"
        if not self._several:
            target = next(iter(self.figures.targets.values()))
            what = f"{self.metric.name} {number(self.metric.loss(target))}, {what}"
            if self.alone:
                what = what.replace("group's median", "value at equal cost")
        parts = []
        for standing in others:
            ratio = standing.cost_ratio
            if not math.isfinite(standing.target_cost):
                parts.append(f"{standing.name} did not get there")
            elif not math.isfinite(first.target_cost):
                parts.append(f"{standing.name} got there and {first.name} did not")
            else:
                needs = _with_ends(ratio)
                parts.append(f"{standing.name} needs {needs} times what {first.name} needs")
        has_interval = any(standing.cost_ratio.low is not None for standing in others)
        sure = f" ({LEVEL * 100:.0f} % sure)" if has_interval else ""
        return f"To reach {what}, {'; '.join(parts)}{sure}."

    def _ranks(self) -> str:
        ordered = sorted(self.figures.standings, key=lambda each: each.rank.value)
        ranks = ", ".join(f"{each.name} {_with_ends(each.rank)}" for each in ordered)
        return f"Mean ranks, 1 is the best: {ranks}."

    def _needed(self) -> list[str]:
        """Say how many sweeps would tell groups apart that can't be told apart."""
        needs = {
            standing.name: self.figures.needed(standing.name)
            for standing in self.figures.standings[1:]
            if standing.verdict == "open"
        }
        sizes = {name: need for name, need in needs.items() if need is not None}
        if not sizes:
            return []
        first = self.figures.groups[0]
        parts = [
            f"{name} from {first} would take "
            + (f"about {need:,}" if need <= 1000 else "thousands")
            for name, need in sizes.items()
        ]
        return [
            f"If the differences stay what they are, telling {', '.join(parts)} sweeps of each."
        ]

    def _standing_alone(self) -> str:
        """Say what one sweep of each can't tell."""
        ordered = sorted(self.figures.standings, key=lambda each: each.loss.value)
        values = [
            each.name
            if self._several
            else f"{each.name} {number(self.metric.loss(each.loss.value))}"
            for each in ordered
        ]
        best = [each.name for each in ordered if each.loss.value == ordered[0].loss.value]
        if len(best) == len(ordered):
            seen = "they are equal"
        elif len(best) > 1:
            seen = f"{' and '.join(best)} are equal and ahead"
        else:
            seen = f"{best[0]} is ahead"
        return (
            f"At equal cost ({self.equal_cost}) {seen}: {', '.join(values)}; one sweep can't tell "
            f"whether that is skill or luck: {self._hint()}."
        )

    def _best_configurations(self) -> list[str]:
        """Say which best configuration is better, as far as repeats tell."""
        if self.bests is None:
            return []
        if isinstance(self.bests, str):
            return [f"Of the best configurations nothing can be told either: {self.bests}."]
        first, *others = self.bests.each
        loss = self.metric.loss
        parts = [
            f"{best.trial} of {best.sweep} is better than {first.trial} of {first.sweep} with "
            f"probability {NONE if best.better is None else share(best.better)} (expected, trained "
            f"again: {number(loss(best.loss))} against {number(loss(first.loss))})"
            for best in others
        ]
        guess = ""
        if not self.bests.measured:
            guess = "; that is a guess from their curves, as not all were trained twice"
        return [f"Of the best configurations, {'; '.join(parts)}{guess}."]

    def _hint(self) -> str:
        """Say what would tell more."""
        keys = differing_keys(self.entries)
        if not self.by and keys and len(self.entries) > 2:
            return f"group repeats by what differs, as in `--by {keys[0]}`"
        return "run each with five seeds (`seed`) or more"


def compare(sweeps: Sequence[OpenSweep], by: Sequence[str] = (), cost: Cost = "hours") -> Compared:
    """Compare sweeps, or groups of them.

    Args:
        by: dotted keys of the spec whose values make the groups; empty: each sweep is one.
        cost: of what the groups get the same amount: hours (GPU-hours, or worker-hours), trials or
            time.

    Raises:
        NotFound: there is no such sweep.
        SpecError: the sweeps can't be compared.
    """
    return compared([Entry.read(sweep) for sweep in sweeps], by, cost)


def compared(entries: Sequence[Entry], by: Sequence[str] = (), cost: Cost = "hours") -> Compared:
    """Compare sweeps that have been read; see `compare`.

    Raises:
        SpecError: the sweeps can't be compared.
    """
    unique = [*{entry.id: entry for entry in entries}.values()]
    check(unique, cost)
    groups = dict(zip((entry.id for entry in unique), group_names(unique, by), strict=True))
    runs = [entry.run(groups[entry.id], cost) for entry in unique if entry.history.improvements]
    valued, counted = {run.group for run in runs}, {run.sweep for run in runs}
    if len(valued) < 2:
        empty = ", ".join(entry.id for entry in unique if not entry.history.improvements)
        raise fail(f"no value in {empty} yet", fix="compare takes two groups that have values")
    figures = compare_runs(runs)
    bests = None
    if all(len(entries) == 1 for entries in _grouped(unique, groups).values()):
        bests = compare_bests(
            {each.id: each.history.state for each in unique if each.id in counted}
        )
    return Compared(unique, groups, by, cost, figures, bests)


def side_by_side(entries: Sequence[Entry], cost: Cost = "hours") -> tuple[Compared | None, str]:
    """Return the comparison of sweeps that nobody has grouped; or None, and why there is none."""
    try:
        check([*entries], cost)
        return compared(entries, usual_groups(entries), cost), ""
    except SpecError as error:
        return None, f"{error}"


def _grouped(entries: Sequence[Entry], groups: Mapping[str, str]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(groups[entry.id], []).append(entry)
    return found


def _with_ends(interval: Interval) -> str:
    """Return `1.2 (1 to 1.8)`."""
    low, high = interval.low, interval.high
    text = _short(interval.value)
    return text if low is None or high is None else f"{text} ({_short(low)} to {_short(high)})"


def _short(value: float) -> str:
    if math.isnan(value):
        return NONE
    if 0 < value < 0.001:
        return "<0.001"
    return ">999" if 999 < value < math.inf else number(value, digits=2)


def _data(interval: Interval) -> dict[str, float | None]:
    return {
        "mean": finite(interval.value),
        "low": finite(interval.low),
        "high": finite(interval.high),
    }
