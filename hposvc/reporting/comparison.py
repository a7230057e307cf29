"""Sweeps, or groups of sweeps, compared: figures, sentences and a chart (`hposvc docs compare`).

The figures come from hposvc/analysis/comparison.py. What is not known is said to be unknown.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from hposvc.analysis import devices
from hposvc.analysis.comparison import (
    FRACTIONS,
    BestConfiguration,
    Comparison,
    Standing,
    compare_bests,
)
from hposvc.analysis.comparison import compare as compare_runs
from hposvc.errors import SpecError, fail
from hposvc.estimate import CONFIDENCE
from hposvc.open_sweep import OpenSweep
from hposvc.reporting.chart import Chart
from hposvc.reporting.charts import comparison as chart
from hposvc.reporting.comparison_checks import (
    ComparedSweep,
    Cost,
    check,
    differing_keys,
    doubts,
    group_names,
    shown,
    usual_groups,
)
from hposvc.spec.metrics import Metric
from hposvc.text import NONE, amount, duration, finite, likely_percent, number, percent

PROBABLY = 0.8  # probability from which a group is called probably better


@dataclass(frozen=True)
class Compared:
    """A comparison of sweeps; the first group is what the others are held against."""

    entries: Sequence[ComparedSweep]
    groups: Mapping[str, str]  # group of each sweep
    by: Sequence[str]  # keys of the spec that make the groups; empty: each sweep is one
    cost: Cost
    figures: Comparison
    bests: Sequence[BestConfiguration] | str | None  # or why nothing is known; None: not asked

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

    @property
    def equal_cost(self) -> str:
        """The cost at which values are compared, for people."""
        budgets = [*self.figures.budgets.values()]
        unit = self.entries[0].history.cost_unit
        return "equal cost" if len(budgets) > 1 else shown(budgets[0], self.cost, unit)

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
        return [*self._better(), self._faster(), *self._ranks(), *self._needed()]

    @property
    def head(self) -> list[str]:
        """The titles of the table's columns."""
        spent = {"trials": [], "time": ["time"], "hours": [self.unit]}[self.cost]
        first = self.figures.groups[0]
        return [
            *(", ".join(self.by) or "sweep", "sweeps", "trials", *spent, "best"),
            *(f"at {self.equal_cost}", "mean rank", f"better than {first}", "cost to target"),
        ]

    @property
    def rows(self) -> list[list[str]]:
        """A row of the table for each group, as texts for people."""
        rows = []
        for place, standing in enumerate(self.figures.standings):
            data = self._group(standing)
            spent = (duration if self.cost == "time" else amount)(data["spent"])
            value = self.metric.loss(standing.loss.value)
            rows.append(
                [
                    standing.name,
                    f"{len(standing.runs)}",
                    f"{data['trials']:,}",
                    *([] if self.cost == "trials" else [spent]),
                    number(data["best"]),
                    NONE if self._several else number(value),
                    standing.rank.text(_short),
                    NONE if standing.better is None else likely_percent(standing.better),
                    standing.cost_ratio.text(_short) if place else "1",
                ]
            )
        return rows

    @cached_property
    def chart(self) -> Chart:
        """Best so far of all groups."""
        return chart.build(self.figures, self.metric, self.cost, self.unit, self.sentences[0])

    def data(self) -> dict[str, Any]:
        """Return the comparison as JSON; the page `compare` documents it."""
        figures, metric = self.figures, self.metric
        budgets, targets = [*figures.budgets.values()], [*figures.targets.values()]
        configurations = None
        if self.bests is not None and not isinstance(self.bests, str):
            configurations = [
                {**asdict(best), "expected": metric.loss(best.expected)} for best in self.bests
            ]
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
            "confidence": CONFIDENCE,
            "fractions": [*FRACTIONS],
            "groups": [self._group(standing) for standing in figures.standings],
            "best_configurations": configurations,
            "left_out": self.left_out,
            "sentences": self.sentences,
            "warnings": self.warnings,
        }

    @property
    def _several(self) -> bool:
        """Whether values are of several tasks, whose units differ."""
        return len(self.figures.tasks) > 1

    def _group(self, each: Standing) -> dict[str, Any]:
        loss, sweeps = self.metric.loss, [run.sweep for run in each.runs]
        entries = [entry for entry in self.entries if entry.id in sweeps]
        bests = [entry.history.improvements[-1].value for entry in entries]
        values = [None if math.isnan(value) else loss(value) for value in each.losses]
        return {
            "name": each.name,
            "sweeps": sweeps,
            "trials": sum(entry.history.started_trials for entry in entries),
            "spent": sum(entry.end(self.cost) for entry in entries),
            "best": min(bests, key=loss),
            "values": None if self._several else values,
            "value": None if self._several else each.loss.map(loss).data(),
            "rank": each.rank.data(),
            "lead": each.lead.data(),
            "better": each.better,
            "verdict": each.verdict,
            "target_cost": finite(each.target_cost),
            "cost_ratio": each.cost_ratio.data(),
        }

    def _better(self) -> list[str]:
        """Say which groups are better than the first, and of which it can't be told."""
        first, *others = self.figures.standings
        loss = self.metric.loss
        parts = []
        for standing in sorted(others, key=lambda standing: standing.verdict == "open"):
            if standing.better is None:
                continue
            stands = f"{standing.name} and {first.name} can't be told apart"
            if standing.verdict != "open":
                stands = f"{standing.name} is {standing.verdict} than {first.name}"
            elif not 1 - PROBABLY <= standing.better <= PROBABLY:
                word = "better" if standing.better > PROBABLY else "worse"
                stands = f"{standing.name} is probably {word} than {first.name}, but not surely"
            part = f"{stands} (probability of being better: {likely_percent(standing.better)})"
            if not self._several:
                values = (number(loss(group.loss.value)) for group in (standing, first))
                part += f": {' against '.join(values)}"
            parts.append(part)
        basis = {
            "seed": f"{self.figures.pairs} pairs of equal seeds",
            "task": f"{self.figures.pairs} pairs of equal tasks",
            "none": "sweeps not paired",
        }[self.figures.pairing]
        where = "of each task" if self._several else self.equal_cost
        sentences = [f"At equal cost ({where}; {basis}), {'; '.join(parts)}."]
        if few := " and ".join(standing.name for standing in others if standing.better is None):
            sentences.append(
                f"One sweep of {few} can't tell skill from luck: run more, with other seeds."
            )
        return sentences

    def _faster(self) -> str:
        """Say who reaches the target sooner."""
        first, *others = self.figures.standings
        what = "the worst group's median"
        if not self._several:
            target = next(iter(self.figures.targets.values()))
            worst = "the worst value at equal cost" if self.alone else what
            what = f"{self.metric.name} {number(self.metric.loss(target))}, {worst}"
        parts = []
        for standing in others:
            if not math.isfinite(standing.target_cost):
                parts.append(f"{standing.name} did not get there")
            elif not math.isfinite(first.target_cost):
                parts.append(f"{standing.name} got there and {first.name} did not")
            else:
                needs = standing.cost_ratio.text(_short)
                parts.append(f"{standing.name} needs {needs} times what {first.name} needs")
        has_interval = any(standing.cost_ratio.known for standing in others)
        sure = f" ({percent(CONFIDENCE)} sure)" if has_interval else ""
        return f"To reach {what}, {'; '.join(parts)}{sure}."

    def _ranks(self) -> list[str]:
        if len(self.figures.groups) < 3:
            return []
        ordered = sorted(self.figures.standings, key=lambda each: each.rank.value)
        ranks = ", ".join(f"{each.name} {each.rank.text(_short)}" for each in ordered)
        return [f"Mean ranks, 1 is the best: {ranks}."]

    def _needed(self) -> list[str]:
        """Say how many sweeps would tell groups apart that can't be told apart."""
        first, *others = self.figures.standings
        needs = {
            standing.name: self.figures.needed(standing.name)
            for standing in others
            if standing.verdict == "open"
        }
        parts = [
            f"{name} from {first.name} would take "
            + (f"about {need:,}" if need <= 1000 else "thousands")
            for name, need in needs.items()
            if need is not None
        ]
        if not parts:
            return []
        return [
            f"If the differences stay what they are, telling {', '.join(parts)} sweeps of each."
        ]

    def _standing_alone(self) -> str:
        """Say what one sweep of each can't tell."""
        loss = self.metric.loss
        ordered = sorted(self.figures.standings, key=lambda standing: standing.loss.value)
        values = [
            standing.name
            if self._several
            else f"{standing.name} {number(loss(standing.loss.value))}"
            for standing in ordered
        ]
        best = [
            standing.name for standing in ordered if standing.loss.value == ordered[0].loss.value
        ]
        seen = f"{best[0]} is ahead"
        if len(best) == len(ordered):
            seen = "they are equal"
        elif len(best) > 1:
            seen = f"{' and '.join(best)} are equal and ahead"
        hint, keys = "run each with five seeds (`seed`) or more", differing_keys(self.entries)
        if not self.by and keys and len(self.entries) > 2:
            hint = f"group repeats by what differs, as in `--by {keys[0]}`"
        return (
            f"At equal cost ({self.equal_cost}) {seen}: {', '.join(values)}; one sweep can't tell "
            f"whether that is skill or luck: {hint}."
        )

    def _best_configurations(self) -> list[str]:
        """Say which best configuration is better, as far as repeats tell."""
        if self.bests is None:
            return []
        if isinstance(self.bests, str):
            return [f"Of the best configurations nothing can be told either: {self.bests}."]
        first, *others = self.bests
        loss = self.metric.loss
        parts = [
            f"{best.trial} of {best.sweep} is better than {first.trial} of {first.sweep} with "
            "probability "
            f"{NONE if best.better is None else likely_percent(best.better)} (expected, trained "
            f"again: {number(loss(best.expected))} against {number(loss(first.expected))})"
            for best in others
        ]
        guess = ""
        if not first.measured:
            guess = "; that is a guess from their curves, as not all were trained twice"
        return [f"Of the best configurations, {'; '.join(parts)}{guess}."]


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
    return compared([ComparedSweep.read(sweep) for sweep in sweeps], by, cost)


def compared(
    entries: Sequence[ComparedSweep], by: Sequence[str] = (), cost: Cost = "hours"
) -> Compared:
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
    if len({*groups.values()}) == len(unique):
        bests = compare_bests(
            {each.id: each.history.state for each in unique if each.id in counted}
        )
    return Compared(unique, groups, by, cost, figures, bests)


def side_by_side(
    entries: Sequence[ComparedSweep], cost: Cost = "hours"
) -> tuple[Compared | None, str]:
    """Return the comparison of sweeps that nobody has grouped; or None, and why there is none."""
    try:
        check([*entries], cost)
        return compared(entries, usual_groups(entries), cost), ""
    except SpecError as error:
        return None, f"{error}"


def _short(value: float) -> str:
    if math.isnan(value):
        return NONE
    if 0 < value < 0.001:
        return "<0.001"
    return f"{value:.2g}" if value <= 999 else ">999" if math.isfinite(value) else "∞"
