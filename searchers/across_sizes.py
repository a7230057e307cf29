"""Search on small models for a large one: the law of `size_law` says where its optimum lies.

Of the planned trials most are of the smallest size, where a search method of one's own proposes.
The next ones check the law on the sizes between, one size after the other upwards, where it is
least sure: the size whose choice has the largest expected regret trains the optimum of one draw.
The last ones have the largest size, the target: first what the law expects to be best there, then
what is expected to gain most on that.

Axes: as in `size_law`.
Source: draws as proposals, Thompson, On the Likelihood that One Unknown Probability Exceeds Another
(1933); expected gains, Mockus, On Bayesian Methods for Seeking the Extremum (1975).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from searchers.domains import Tied
from searchers.gp.encoding import Encoding, units
from searchers.novelty import SeenConfigs
from searchers.searcher import Observation, Proposal, Searcher, suggest_fixed
from searchers.size_law import LawTrials, SizeLaw, expected_gain, regret
from searchers.space import Choice, Space
from searchers.values import Params, Value, identity, is_number

Array = NDArray[np.float64]

CHECKS = 0.25  # of the trials: those of sizes between the smallest and the target
FEWEST = 6  # results from which there is a law
RANDOM, NEAR, ROUNDS, PARENTS = 384, 24, 4, 8  # candidates: at random, and near the best ones
STEP = 0.2  # of the first moves, in ranges; each round halves it
KEPT = 192  # candidates of which draws are made
DRAWS = 256
ALIKE = 0.999  # correlation from which two logarithms of sizes are one


@dataclass(frozen=True)
class Sizes:
    """The sizes of a space, and configurations as the law takes them."""

    space: Space
    over: str  # the parameter

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """The sizes, the smallest first."""
        domain = self.space[self.over]
        assert isinstance(domain, Choice)
        return domain.values

    @cached_property
    def logs(self) -> dict[object, Array]:
        """The logarithms (base 2) of each size, and of numbers tied to it that go another way."""
        tied = [
            domain
            for domain in self.space.values()
            if isinstance(domain, Tied) and domain.key == self.over
        ]
        columns = [self.values, *(domain.values for domain in tied)]
        numbers = [
            np.log2(np.array(column, dtype=float))
            for column in columns
            if all(is_number(value) and value > 0 for value in column)
        ]
        kept: list[Array] = []
        for column in numbers:
            moves = np.ptp(column) > 0
            if moves and all(abs(np.corrcoef(column, other)[0, 1]) < ALIKE for other in kept):
                kept.append(column)
        size_SZ = np.column_stack(kept)
        return {identity(value): row for value, row in zip(self.values, size_SZ, strict=True)}

    @cached_property
    def _encoding(self) -> Encoding:
        return Encoding.of(self.space)

    @cached_property
    def _columns(self) -> tuple[NDArray[np.intp], int]:
        """The model's columns without that of the size: numbers first; and how many these are."""
        at = self.space.searched.index(self.over)
        owner_D = self._encoding.parameter_D
        numbers = np.array([not each.categorical for each in self._encoding.searched])
        own = [np.flatnonzero((owner_D != at) & (numbers[owner_D] == kind)) for kind in (1, 0)]
        return np.concatenate(own), len(own[0])

    @property
    def numbers(self) -> int:
        """How many columns are numbers."""
        return self._columns[1]

    def columns(self, unit_NP: Array) -> Array:
        """Return the law's columns of points of the unit cube."""
        points = self._encoding.snap(unit_NP)
        return self._encoding.columns_of(points)[:, self._columns[0]]

    def size_of(self, params: Params) -> Array:
        """Return the logarithms of a configuration's size."""
        return self.logs[identity(params[self.over])]

    def law(self, history: Sequence[Observation]) -> SizeLaw | None:
        """Return the law of the trials with a loss; None: there are too few."""
        ended = [seen for seen in history if seen.loss is not None and math.isfinite(seen.loss)]
        ended = [seen for seen in ended if self.over in seen.params]
        if len(ended) < FEWEST:
            return None
        x_ND = self.columns(units(self.space, [seen.params for seen in ended]))
        size_NZ = np.array([self.size_of(seen.params) for seen in ended])
        loss_N = np.array([seen.mean_loss(float(seen.loss or 0.0)) for seen in ended])
        return SizeLaw.of(LawTrials(x_ND, self.numbers, size_NZ, loss_N))

    def points(self, seen: Sequence[Observation], size: Value) -> tuple[Array, Array, Array]:
        """Return the columns of trials of a size, its logarithms, and losses above the best."""
        x_MD = self.columns(units(self.space, [each.params for each in seen]))
        loss_M = np.array([each.loss for each in seen], dtype=float)
        return x_MD, self.logs[identity(size)], loss_M - loss_M.min()

    def candidates(
        self, law: SizeLaw, size: Value, history: Sequence[Observation], rng: Generator
    ) -> list[dict[str, Value]]:
        """Return configurations of a size, those first that the law expects to be best."""
        part = self.space.fix({**self.space.fixed, self.over: size})
        size_Z = self.logs[identity(size)]
        seen = [{**each.params, self.over: size} for each in history if self.over in each.params]
        if part.constraints:
            first_NP = units(part, part.sample_related(RANDOM, rng))
        else:
            first_NP = part.drawn(rng.random((RANDOM, len(part.searched))))
        unit_NP = self._allowed(part, part.place_fixed(np.vstack([first_NP, units(part, seen)])))
        step = STEP
        for _ in range(ROUNDS):
            order = np.argsort(law.mean(self.columns(unit_NP), size_Z), kind="stable")
            unit_NP = unit_NP[order[:RANDOM]]
            parent_NP = np.repeat(unit_NP[:PARENTS], NEAR, axis=0)
            moved_NP = parent_NP + step * rng.standard_normal(parent_NP.shape)
            moved_NP = np.abs(1.0 - np.abs(1.0 - moved_NP)).clip(0.0, 1.0)
            changed_NP = rng.random(moved_NP.shape) < 0.5
            child_NP = part.place_fixed(np.where(changed_NP, moved_NP, parent_NP))
            unit_NP = np.vstack([unit_NP, self._allowed(part, child_NP)])
            step /= 2
        order = np.argsort(law.mean(self.columns(unit_NP), size_Z), kind="stable")
        found: dict[object, dict[str, Value]] = {}
        for unit_P in unit_NP[order]:
            params = part.decode(unit_P)
            if part.allows(params):
                found.setdefault(part.key(params), params)
            if len(found) == KEPT:
                break
        return [*found.values()]

    def _allowed(self, part: Space, unit_NP: Array) -> Array:
        """Return the points whose configurations meet the constraints."""
        if not part.constraints:
            return unit_NP
        return unit_NP[[part.allows(part.decode(unit_P)) for unit_P in unit_NP]]

    def draws(
        self, law: SizeLaw, configs: Sequence[Params], size: Value, count: int, rng: Generator
    ) -> Array:
        """Return losses (draws x M) of configurations at a size that the law holds possible."""
        x_MD = self.columns(units(self.space, configs))
        return law.draws(x_MD, self.logs[identity(size)], count, rng)


@dataclass(frozen=True)
class AcrossSizes:
    """A searcher of a space with a parameter that is the size of the model.

    Attributes:
        searcher: proposes at the smallest size.
        over: the parameter, an ordered choice of numbers.
        trials: that the sweep will have in all.
        at_target: of these, the last ones, of the largest size.
    """

    searcher: Searcher
    over: str
    trials: int
    at_target: int = 1

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        sizes = Sizes(space, self.over)
        known = list(history)
        proposals: list[Proposal] = []
        for number in range(n):
            found = self._next(sizes, known, rng)
            if found is None:
                break
            proposals.append(found)
            known.append(Observation(f"new {number}", found.params, found.note))
        return proposals

    def role(self, index: int, sizes: int) -> str:
        """Return what a trial is for, by its place in the sweep: search, check or target."""
        left = self.trials - self.at_target
        checks = 0 if sizes < 3 else max(sizes - 2, round(CHECKS * left))
        if index >= left:
            return "target"
        return "check" if index >= left - checks else "search"

    def _next(
        self, sizes: Sizes, history: Sequence[Observation], rng: Generator
    ) -> Proposal | None:
        """Return the next proposal; a size that is used up leaves its trials to the next ones."""
        role, largest = self.role(len(history), len(sizes.values)), sizes.values[-1]
        if (fixed := sizes.space.fixed.get(self.over)) is not None:
            return self._by_law(sizes, sizes.law(history), role, fixed, history, rng)
        if role == "search":
            found = self._small(sizes.space, history, sizes.values[0], rng)
            if found is not None:
                return found
        law = sizes.law(history)
        if role != "target":
            for size in self._least_sure(sizes, law, history, rng):
                found = self._by_law(sizes, law, "check", size, history, rng)
                if found is not None:
                    return found
            if sum(_is_of(seen, self.over, largest) for seen in history) >= self.at_target:
                return None
        return self._by_law(sizes, law, "target", largest, history, rng)

    def _by_law(
        self,
        sizes: Sizes,
        law: SizeLaw | None,
        role: str,
        size: Value,
        history: Sequence[Observation],
        rng: Generator,
    ) -> Proposal | None:
        """Return the law's proposal at a size, or the search method's; None: it is used up."""
        if law is None:
            return self._small(sizes.space, history, size, rng)
        configs = sizes.candidates(law, size, history, rng)
        taken = SeenConfigs(sizes.space, (seen.params for seen in history))
        loss_SM = sizes.draws(law, configs, size, DRAWS, rng)
        if role == "target":
            key = sizes.space.key
            tried = {key(seen.params) for seen in history if seen.state != "failed"}
            known = [index for index, params in enumerate(configs) if key(params) in tried]
            gain_M = expected_gain(loss_SM, known) if known else -loss_SM.mean(axis=0)
            order = np.argsort(-gain_M, kind="stable")
        else:
            order = np.argsort(loss_SM[0], kind="stable")
        for index in order.tolist():
            if configs[index] not in taken:
                note = {"source": "sizes", "role": role, "mean": float(loss_SM[:, index].mean())}
                return Proposal(configs[index], note)
        return self._small(sizes.space, history, size, rng)

    def _small(
        self, space: Space, history: Sequence[Observation], size: Value, rng: Generator
    ) -> Proposal | None:
        """Return a proposal of the search method at a size, by the trials of that size alone."""
        own = [seen for seen in history if _is_of(seen, self.over, size)]
        found = suggest_fixed(self.searcher, space, own, {**space.fixed, self.over: size}, 1, rng)
        return found[0] if found else None

    def _least_sure(
        self, sizes: Sizes, law: SizeLaw | None, history: Sequence[Observation], rng: Generator
    ) -> list[Value]:
        """Return the sizes between, those first whose choice has the largest expected regret.

        No size is left out: before all the smallest one comes that was not tried.
        """
        between = sizes.values[1:-1]
        new = [
            size for size in between if not any(_is_of(seen, self.over, size) for seen in history)
        ]
        if new or law is None:
            return [*new, *(size for size in between if size not in new)]
        regrets = []
        for size in between:
            configs = sizes.candidates(law, size, history, rng)
            regrets.append(regret(sizes.draws(law, configs, size, DRAWS, rng), 0).mean())
        return [between[index] for index in np.argsort(-np.array(regrets), kind="stable")]


def _is_of(seen: Observation, over: str, size: Value) -> bool:
    return identity(seen.params.get(over)) == identity(size)
