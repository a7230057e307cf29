"""Regrets, ranks and pairs of wins from runs, in Markdown.

Axes: P pairs (problem, seed), M methods, B resamples.
Normalised regret: 0 is the lowest loss that is known, 1 what random search has after 60
evaluations (the median over 31 seeds); it is cut to [0, 3].
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from problems.catalogue import Catalogue, Reference
from runs import Run
from scipy.stats import binomtest, rankdata
from tables import figure, table

Array = NDArray[np.float64]
Pair = tuple[str, int]  # problem, seed
AT = (20, 30, 50, 100)
RESAMPLES = 2000
WORST = 3.0
STARTED = 10  # asks that are no part of the cost: they are from a start design


@dataclass(frozen=True)
class Standing:
    """The regrets of every method that has come to `at` evaluations."""

    at: int
    regrets: Mapping[str, Mapping[Pair, float]]  # by method
    catalogue: Catalogue

    @classmethod
    def of(
        cls,
        found: Sequence[Run],
        at: int,
        catalogue: Catalogue,
        known: Mapping[str, Reference] | None = None,
    ) -> "Standing":
        """Return the regrets against what is `known`; None: against the catalogue's references."""
        known = known or catalogue.references
        regrets: dict[str, dict[Pair, float]] = {}
        for run in found:
            if len(run.incumbent) >= at:
                value = regret(run.incumbent[at - 1], known[run.problem])
                regrets.setdefault(run.method, {})[run.problem, run.seed] = value
        return cls(at, regrets, catalogue)

    @property
    def methods(self) -> list[str]:
        """The best first."""
        common = self.common(list(self.regrets))
        return sorted(self.regrets, key=lambda method: self.mean(method, common))

    def common(self, methods: Sequence[str], family: str | None = None) -> list[Pair]:
        """The pairs that all of the methods have, of one family or of all."""
        if not methods:
            return []
        shared = set.intersection(*(set(self.regrets.get(method, {})) for method in methods))
        problems = self.catalogue.problems
        return sorted(
            pair for pair in shared if family is None or problems[pair[0]].family == family
        )

    def mean(self, method: str, pairs: Sequence[Pair]) -> float:
        """Of the problems' means, so that each problem counts the same."""
        by_problem: dict[str, list[float]] = {}
        for pair in pairs:
            by_problem.setdefault(pair[0], []).append(self.regrets[method][pair])
        means = [float(np.mean(values)) for values in by_problem.values()]
        return float(np.mean(means)) if means else math.nan

    def ranks(self, methods: Sequence[str], pairs: Sequence[Pair]) -> Array:
        """P x M, 1 the best; equals share a rank."""
        regrets_PM = [[self.regrets[method][pair] for method in methods] for pair in pairs]
        ranks_PM: Array = rankdata(regrets_PM, axis=1)
        return ranks_PM


def lowest(found: Iterable[Run], catalogue: Catalogue) -> dict[str, Reference]:
    """What is known of each problem; a run that went lower moves the best."""
    known = dict(catalogue.references)
    for run in found:
        before = known[run.problem]
        if min(run.incumbent) < before.best:
            known[run.problem] = Reference(min(run.incumbent), before.random)
    return known


def regret(loss: float, known: Reference) -> float:
    return min(max((loss - known.best) / (known.random - known.best), 0.0), WORST)


def resampled(pairs: Sequence[Pair], rng: np.random.Generator) -> NDArray[np.int64]:
    """Indices of pairs: problems with replacement, then as many seeds of each, likewise."""
    places: dict[str, list[int]] = {}
    for place, pair in enumerate(pairs):
        places.setdefault(pair[0], []).append(place)
    groups = [np.array(group) for group in places.values()]
    drawn = [groups[index] for index in rng.integers(len(groups), size=len(groups))]
    return np.concatenate([group[rng.integers(len(group), size=len(group))] for group in drawn])


def ratios(before_PA: Array, after_PA: Array, pairs: Sequence[Pair]) -> list[str]:
    """The mean after over the mean before, by column, each with its 95 % interval by bootstrap."""
    rng = np.random.default_rng(0)
    picks = [resampled(pairs, rng) for _ in range(RESAMPLES)]

    def ratio_A(chosen: NDArray[np.int64] | slice) -> Array:
        mean_A: Array = after_PA[chosen].mean(axis=0)
        return mean_A / np.maximum(before_PA[chosen].mean(axis=0), 1e-9)

    low_A, high_A = np.quantile([ratio_A(pick) for pick in picks], [0.025, 0.975], axis=0)
    bounds = zip(ratio_A(slice(None)), low_A, high_A, strict=True)
    return [f"{ratio:.2f} ({low:.2f} – {high:.2f})" for ratio, low, high in bounds]


def interval(ranks_PM: Array, pairs: Sequence[Pair]) -> Array:
    """The 95 % interval of each method's mean rank, 2 x M, by bootstrap."""
    rng = np.random.default_rng(0)
    means_BM = [ranks_PM[resampled(pairs, rng)].mean(axis=0) for _ in range(RESAMPLES)]
    bounds: Array = np.quantile(means_BM, [0.025, 0.975], axis=0)
    return bounds


def report(
    found: Sequence[Run], against: str, catalogue: Catalogue, known: Mapping[str, Reference]
) -> str:
    """All that is to be printed; `against` is the method that the others are paired with."""
    every = [Standing.of(found, at, catalogue, known) for at in AT]
    standings = [one for one in every if one.regrets]
    parts = [*map(together, standings), paired(standings, against), cost(found)]
    return "\n".join(part for part in parts if part)


def together(standing: Standing) -> str:
    """Mean regret and rank over the pairs that all methods have, of all families and of each."""
    methods = standing.methods
    pairs = standing.common(methods)
    if not pairs:
        return f"After {standing.at} evaluations no pair of problem and seed is common to all.\n"
    groups = {family: standing.common(methods, family) for family in standing.catalogue.families}
    groups = {family: group for family, group in groups.items() if group}
    ranks_PM = standing.ranks(methods, pairs)
    low_M, high_M = interval(ranks_PM, pairs)
    rows = []
    for place, method in enumerate(methods):
        rank = f"{ranks_PM[:, place].mean():.2f} ({low_M[place]:.2f} – {high_M[place]:.2f})"
        cells = [_of_family(standing, method, group) for group in groups.values()]
        rows.append([method, figure(standing.mean(method, pairs), 3), rank, *cells])
    problems = len({problem for problem, _ in pairs})
    title = (
        f"After {standing.at} evaluations: regret and mean rank (95 %) over {len(pairs)} common "
        f"runs on {problems} problems; regret (rank) by family."
    )
    return f"{title}\n\n" + table(["method", "regret", "rank", *groups], rows)


def _of_family(standing: Standing, method: str, pairs: Sequence[Pair]) -> str:
    methods = standing.methods
    rank = standing.ranks(methods, pairs)[:, methods.index(method)].mean()
    return f"{standing.mean(method, pairs):.3f} ({rank:.1f})"


def paired(standings: Sequence[Standing], against: str) -> str:
    """Each method against one, over the pairs that both have."""
    rows = []
    methods = dict.fromkeys(method for one in standings for method in one.regrets)
    for method in methods:
        cells = [_duel(one, against, method) for one in standings]
        if method != against and any(cells):
            rows.append([method, *(cell or "–" for cell in cells)])
    if not rows:
        return ""
    title = (
        f"`{against}` against each, on the problems and seeds that both have: regret / the other's "
        f"(pairs; won–lost, p of a sign test)."
    )
    return f"{title}\n\n" + table(["method", *(f"at {one.at}" for one in standings)], rows)


def _duel(standing: Standing, against: str, method: str) -> str:
    pairs = standing.common([against, method])
    if not pairs:
        return ""
    mine, other = standing.regrets[against], standing.regrets[method]
    won = sum(mine[pair] < other[pair] for pair in pairs)
    lost = sum(mine[pair] > other[pair] for pair in pairs)
    chance = binomtest(won, won + lost).pvalue if won + lost else 1.0
    means = f"{standing.mean(against, pairs):.3f} / {standing.mean(method, pairs):.3f}"
    return f"{means} ({len(pairs)}; {won}–{lost}, p {chance:.2g})"


def cost(found: Sequence[Run]) -> str:
    """CPU time of an ask, once the searches have started."""
    by_method: dict[str, list[float]] = {}
    for run in found:
        by_method.setdefault(run.method, []).extend(run.ask_ms[STARTED:])
    rows = [
        [method, *(figure(value, 1) for value in np.quantile(taken, [0.5, 0.95]))]
        for method, taken in sorted(by_method.items(), key=lambda one: float(np.median(one[1])))
        if taken
    ]
    return "CPU ms of an ask and its tell.\n\n" + table(["method", "median", "95 %"], rows)
