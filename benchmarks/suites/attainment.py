"""Targets reached, ranks and pairs of wins from runs on public suites, in Markdown.

Axes: P problems that all methods have, M methods, T targets, E evaluations.
A target is a gap to come to: 51 for each suite, evenly spaced in the logarithm, as COCO has them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from runs import Run
from scipy.stats import binomtest, rankdata
from standings import cost, interval
from tables import figure, table

from suites.catalogue import SUITES, Key

Array = NDArray[np.float64]
Found = Sequence[tuple[Key, Run]]
TARGETS = 51
WORST_SHOWN = 8


@dataclass(frozen=True)
class Standing:
    """The gaps of each method on one suite, where it has come to `at` evaluations."""

    suite: str
    at: int
    gaps: Mapping[str, Mapping[Key, Array]]  # by method: E

    @classmethod
    def of(cls, found: Found, suite: str, at: int) -> "Standing":
        floor = 10.0 ** SUITES[suite].lowest  # nobody wins by less than the hardest target
        gaps: dict[str, dict[Key, Array]] = {}
        for key, run in found:
            if key.suite == suite and len(run.incumbent) >= at:
                gap_E = np.maximum(run.incumbent[:at], floor)
                gaps.setdefault(run.method, {})[key] = gap_E
        return cls(suite, at, gaps)

    def common(self, methods: Iterable[str]) -> list[Key]:
        """Return the problems that all of the methods have."""
        have = [set(self.gaps.get(method, ())) for method in methods]
        return sorted(set.intersection(*have), key=lambda key: key.name) if have else []

    def last(self, method: str, key: Key) -> float:
        return float(self.gaps[method][key][-1])

    def ranks(self, keys: Sequence[Key]) -> Array:
        """Return P x M, 1 the best; equals share a rank."""
        gaps_PM = [[self.last(method, key) for method in self.gaps] for key in keys]
        ranks_PM: Array = rankdata(gaps_PM, axis=1)
        return ranks_PM

    def attained(self, method: str, keys: Sequence[Key]) -> Array:
        """Return the share of problems and targets that are reached after each evaluation, E."""
        gap_PE = np.array([self.gaps[method][key] for key in keys])
        target_T = targets(self.suite)
        share_E: Array = (gap_PE[..., None] <= target_T * (1 + 1e-9)).mean(axis=(0, 2))
        return share_E


def targets(suite: str) -> Array:
    """Return the gaps to come to, the easiest first."""
    return np.logspace(SUITES[suite].highest, SUITES[suite].lowest, TARGETS)


def report(found: Found, against: str, at: Sequence[int]) -> str:
    """Return all that is to be printed; `against` is the method that the others are paired with."""
    parts = []
    for suite in dict.fromkeys(key.suite for key, _ in found):
        standings = [Standing.of(found, suite, count) for count in at]
        standings = [one for one in standings if one.common(one.gaps)]
        if standings:
            parts += [f"**{suite}**\n", together(standings), groups(standings[-1])]
            parts += [paired(standings, against), behind(standings[-1], against)]
    return "\n".join(part for part in [*parts, cost([run for _, run in found])] if part)


def together(standings: Sequence[Standing]) -> str:
    """Return targets reached and mean ranks, over the problems that all methods have."""
    methods = dict.fromkeys(method for one in standings for method in one.gaps)
    reached: dict[str, list[str]] = {method: [] for method in methods}
    ranked: dict[str, list[str]] = {method: [] for method in methods}
    for one in standings:
        keys = one.common(one.gaps)
        mean_M, low_M, high_M = _mean_ranks(one, keys)
        for method in methods:
            if method not in one.gaps:
                reached[method].append("–")
                ranked[method].append("–")
                continue
            place = list(one.gaps).index(method)
            share_E = one.attained(method, keys)
            reached[method].append(f"{share_E[-1]:.3f} ({share_E.mean():.3f})")
            ranked[method].append(f"{mean_M[place]:.2f} ({low_M[place]:.2f} – {high_M[place]:.2f})")
    order = sorted(methods, key=lambda method: ranked[method][-1].replace("–", "99", 1))
    counts = ", ".join(f"{len(one.common(one.gaps))} at {one.at}" for one in standings)
    title = (
        "Share of targets reached (in brackets: of all evaluations so far), and mean rank (95 %); "
        f"problems that all have: {counts}."
    )
    head = [f"targets at {one.at}" for one in standings] + [
        f"rank at {one.at}" for one in standings
    ]
    rows = [[method, *reached[method], *ranked[method]] for method in order]
    return f"{title}\n\n" + table(["method", *head], rows)


def groups(standing: Standing) -> str:
    """Return the mean rank of each method by group of functions."""
    keys = standing.common(standing.gaps)
    by_group = {group: [key for key in keys if key.group == group] for group in _groups(keys)}
    ranks = {group: standing.ranks(some).mean(axis=0) for group, some in by_group.items()}
    order = np.argsort(standing.ranks(keys).mean(axis=0))
    rows = [
        [list(standing.gaps)[place], *(figure(rank_M[place]) for rank_M in ranks.values())]
        for place in order
    ]
    head = [f"{group} ({len(some)})" for group, some in by_group.items()]
    title = f"Mean rank at {standing.at} by group (problems)."
    return f"{title}\n\n" + table(["method", *head], rows)


def paired(standings: Sequence[Standing], against: str) -> str:
    """Return each method against one, over the problems that both have."""
    methods = dict.fromkeys(method for one in standings for method in one.gaps)
    rows = [
        [method, *(_duel(one, against, method) for one in standings)]
        for method in methods
        if method != against
    ]
    title = (
        f"`{against}` against each, on the problems that both have: won–lost (p of a sign test); "
        f"median of its gap / the other's."
    )
    return f"{title}\n\n" + table(["method", *(f"at {one.at}" for one in standings)], rows)


def behind(standing: Standing, against: str) -> str:
    """Return where `against` has the worst mean ranks, with its gap and the best method's."""
    keys = standing.common(standing.gaps)
    methods = list(standing.gaps)
    if against not in methods or len(methods) < 2:
        return ""
    rows: list[tuple[float, list[str]]] = []
    for name in dict.fromkeys(key.function_name for key in keys):
        some = [key for key in keys if key.function_name == name]
        rank = standing.ranks(some)[:, methods.index(against)].mean()
        means = {method: _typical(standing, method, some) for method in methods}
        best = min(means, key=lambda method: means[method])
        figures = [f"{rank:.1f}", _gap(means[against]), best, _gap(means[best])]
        if best != against:
            rows.append((float(rank), [name, *figures]))
    if not rows:
        return f"On no function is `{against}` behind at {standing.at}.\n"
    rows.sort(key=lambda row: -row[0])
    title = f"Where `{against}` is most behind at {standing.at}, of {len(methods)} methods."
    head = ["function", "rank", "gap", "best method", "its gap"]
    return f"{title}\n\n" + table(head, [row for _, row in rows[:WORST_SHOWN]])


def _mean_ranks(standing: Standing, keys: Sequence[Key]) -> tuple[Array, Array, Array]:
    """Return the mean rank and its 95 % interval, by functions and then instances: 3 times M."""
    ranks_PM = standing.ranks(keys)
    low_M, high_M = interval(ranks_PM, [(key.function_name, key.instance) for key in keys])
    mean_M: Array = ranks_PM.mean(axis=0)
    return mean_M, low_M, high_M


def _duel(standing: Standing, against: str, method: str) -> str:
    keys = standing.common([against, method])
    if not keys:
        return "–"
    mine = np.array([standing.last(against, key) for key in keys])
    other = np.array([standing.last(method, key) for key in keys])
    won, lost = int((mine < other).sum()), int((mine > other).sum())
    chance = binomtest(won, won + lost).pvalue if won + lost else 1.0
    told = np.isfinite(mine) | np.isfinite(other)
    factor = float(np.median(mine[told] / other[told])) if told.any() else math.nan
    return f"{won}–{lost} (p {chance:.2g}); {factor:.2g}"


def _groups(keys: Sequence[Key]) -> list[str]:
    """Return the groups in the order of their functions."""
    ordered = sorted(keys, key=lambda key: (key.dimensions, key.function))
    return list(dict.fromkeys(key.group for key in ordered))


def _typical(standing: Standing, method: str, keys: Sequence[Key]) -> float:
    """Return the geometric mean of the gaps."""
    return float(np.exp(np.mean([np.log(standing.last(method, key)) for key in keys])))


def _gap(value: float) -> str:
    return f"{value:.2g}" if math.isfinite(value) else "no limit kept"
