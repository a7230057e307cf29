"""The encoding of a Space's unit cube (a column for each parameter) as model columns, vectorized.

A number or an ordered choice is one column, at the centre of its cell; an unordered choice is one
column per value (one-hot / sqrt 2, so that any two values are 1 apart); where numbers tell how
alike its values are, these columns weigh little, and others follow them (likeness.py). An inactive
parameter is at 0.5, or at zeros. Shares are made to add up. Decoding to user units is left to the
Space and to the few points that need it.

Axes: N points, P searched parameters in the order of `space.searched`, D model columns, C smooth
parameters, V values of one parameter, W columns of one parameter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from searchers.gp.kernels import Array, Index
from searchers.gp.likeness import LABEL, places
from searchers.shares import Share, Shares
from searchers.space import Choice, Constant, Domain, Params, Space

Mask = NDArray[np.bool_]

INACTIVE = 0.5
# A grid of more values is searched as if continuous; decoding still rounds to its values.
MAX_GRID_VALUES = 100_000
TO_ZERO = 0.25  # of a share's moves, where shares of 0 are wanted
COARSE = 16  # values up to which mutations alone find the best


@dataclass(frozen=True)
class Points:
    """Snapped unit rows, and which of their parameters are active."""

    unit_NP: Array
    active_NP: Mask

    def __len__(self) -> int:
        return len(self.unit_NP)

    def take(self, index: Index | Sequence[int]) -> "Points":
        return Points(self.unit_NP[index], self.active_NP[index])

    def joined(self, other: "Points") -> "Points":
        return Points(
            np.vstack([self.unit_NP, other.unit_NP]), np.vstack([self.active_NP, other.active_NP])
        )


@dataclass(frozen=True)
class Parameter:
    """The encoding of one searched parameter."""

    centre_V: Array  # positions of its values in the unit interval, ascending; empty: continuous
    categorical: bool
    requires: tuple[tuple[int, Array], ...]  # (parent, its positions that keep this one active)
    place_VW: Array  # of a category: the columns beside those of the values, maybe none

    @classmethod
    def of(cls, space: Space, name: str) -> "Parameter":
        domain = space[name]
        categorical = isinstance(domain, Choice) and not domain.ordered
        place_VW = places(space, name) if categorical else np.empty((0, 0))
        return cls(_centres(domain), categorical, tuple(_requirements(space, name)), place_VW)

    @property
    def width(self) -> int:
        return len(self.centre_V) + self.place_VW.shape[1] if self.categorical else 1

    @property
    def apart(self) -> float:
        """The squared distance of two categories by their own columns."""
        return LABEL if self.place_VW.shape[1] else 1.0

    @property
    def is_smooth(self) -> bool:
        """Whether the parameter is continuous, or on a grid so fine that a gradient helps."""
        return not self.categorical and not 0 < len(self.centre_V) <= COARSE

    def index(self, unit_N: Array) -> Index:
        """Return the index of the value whose centre is nearest to each position."""
        return np.searchsorted((self.centre_V[1:] + self.centre_V[:-1]) / 2.0, unit_N, side="right")

    def columns(self, unit_N: Array) -> Array:
        """Return the columns (N x W) of snapped positions."""
        if not self.categorical:
            return unit_N[:, None]
        own_NV = (unit_N[:, None] == self.centre_V) * math.sqrt(self.apart / 2.0)
        return np.hstack([own_NV, self.place_VW[self.index(unit_N)]])


@dataclass(frozen=True)
class Together:
    """Shares among the parameters."""

    shares: Shares
    index_K: Index  # of the parameters
    held_K: Mask  # the shares with a fixed value

    @classmethod
    def of(cls, space: Space, shares: Shares) -> "Together":
        index_K = np.array([space.searched.index(name) for name in shares.members], dtype=np.intp)
        return cls(shares, index_K, np.array([name in space.fixed for name in shares.members]))

    def snapped(self, unit_NP: Array, held_P: Mask | None = None) -> Array:
        """Return the units of shares (N x K) that add up, near to those of some points.

        Args:
            held_P: parameters that stay as they are beside the fixed ones; None: none.
        """
        held_K = self.held_K if held_P is None else self.held_K | held_P[self.index_K]
        amount_NK = self.shares.amounts(unit_NP[:, self.index_K])
        return self.shares.units(self.shares.balanced(amount_NK, held_K))

    def scaled(self, unit_SP: Array) -> tuple[Array, Array]:
        """Return units (S x K) whose amounts add up, up to ranges, and by what roots were scaled.

        The gradient by the units given is that by the units returned, less its part along them:
        see `pulled_back`.
        """
        root_SK, free_K = self.shares.roots(unit_SP[:, self.index_K]), ~self.held_K
        amount_SK = self.shares.width_K * root_SK**2
        rest_S = self.shares.quanta - self.shares.base_K.sum() - amount_SK[:, self.held_K].sum(1)
        whole_S = np.maximum(amount_SK[:, free_K].sum(axis=1), 1e-9)
        factor_S = np.sqrt(np.maximum(rest_S, 0.0) / whole_S)
        scaled_SK = np.where(free_K, root_SK * factor_S[:, None], root_SK)
        return self.shares.at_roots(scaled_SK), np.where(free_K, factor_S[:, None], 1.0)

    def pulled_back(self, gradient_SK: Array, unit_SK: Array, factor_SK: Array) -> Array:
        """Return the gradient by the units that `scaled` took.

        With x = f y and f = sqrt(R / sum w y^2), dx_i / dy_j is f (1_ij - x_i w_j x_j / R).
        """
        free_K = ~self.held_K
        width = self.shares.zero_width
        root_SK = np.maximum(unit_SK - width, 0.0) / (1.0 - width)  # above 1 before it is snapped
        weighted_SK = self.shares.width_K * root_SK * free_K
        rest_S = np.maximum((weighted_SK * root_SK).sum(axis=1), 1e-9)
        along_S = (gradient_SK * root_SK * free_K).sum(axis=1) / rest_S
        own_SK: Array = factor_SK * (gradient_SK - weighted_SK * along_S[:, None])
        return own_SK


@dataclass(frozen=True)
class Encoding:
    """The searched parameters of one space, as model columns."""

    searched: tuple[Parameter, ...]
    together: tuple[Together, ...] = ()

    @classmethod
    def of(cls, space: Space) -> "Encoding":
        together = tuple(Together.of(space, shares) for shares in space.shares)
        return cls(tuple(Parameter.of(space, name) for name in space.searched), together)

    @property
    def parameters(self) -> int:
        return len(self.searched)

    @property
    def first_column_P(self) -> Index:
        """The first model column of each parameter."""
        return np.cumsum([0, *(parameter.width for parameter in self.searched[:-1])], dtype=np.intp)

    @property
    def parameter_D(self) -> Index:
        """The parameter of each model column."""
        return np.repeat(
            np.arange(self.parameters), [parameter.width for parameter in self.searched]
        )

    @property
    def smooth_C(self) -> Index:
        """The parameters that a gradient can follow; those on a grid are snapped after it."""
        return np.flatnonzero([parameter.is_smooth for parameter in self.searched])

    def snap(self, unit_NP: Array, held_P: Mask | None = None) -> Points:
        """Return the nearest points that a proposal can have.

        Args:
            held_P: shares that stay as they are, while the others make up for them; None: none.
        """
        unit_NP = unit_NP.copy()
        active_NP = np.ones(unit_NP.shape, dtype=np.bool_)
        last = {int(together.index_K[-1]): together for together in self.together}
        for index, parameter in enumerate(self.searched):
            if len(parameter.centre_V):
                unit_NP[:, index] = parameter.centre_V[parameter.index(unit_NP[:, index])]
            for other, allowed_V in parameter.requires:
                holds_N = (unit_NP[:, other, None] == allowed_V).any(axis=1)
                active_NP[:, index] &= active_NP[:, other] & holds_N
            unit_NP[~active_NP[:, index], index] = INACTIVE
            if index in last:  # before what depends on one of them
                rows = np.ix_(active_NP[:, index], last[index].index_K)
                unit_NP[rows] = last[index].snapped(unit_NP[active_NP[:, index]], held_P)
        return Points(unit_NP, active_NP)

    def columns_of(self, points: Points) -> Array:
        """Return the model's columns (N x D) of snapped points."""
        column_ND = np.empty((len(points), sum(searched.width for searched in self.searched)))
        for index, first in enumerate(self.first_column_P):
            parameter = self.searched[index]
            column_NW = parameter.columns(points.unit_NP[:, index])
            if parameter.categorical:
                column_NW *= points.active_NP[:, index, None]
            column_ND[:, first : first + parameter.width] = column_NW
        return column_ND

    def is_active(self, x_MD: Array, index: int) -> Mask:
        """Return whether a parameter is active, from the model columns."""
        active_M = np.ones(len(x_MD), dtype=np.bool_)
        for other, allowed_V in self.searched[index].requires:
            active_M &= self.is_active(x_MD, other) & self._has_value(x_MD, other, allowed_V)
        return active_M

    def _has_value(self, x_MD: Array, index: int, allowed_V: Array) -> Mask:
        """Return whether a parameter has one of the values, given by their unit positions."""
        parameter, first = self.searched[index], self.first_column_P[index]
        if not parameter.categorical:
            return np.isin(x_MD[:, first], allowed_V)
        is_allowed_V = np.isin(parameter.centre_V, allowed_V)
        own_MV = x_MD[:, first : first + len(parameter.centre_V)]
        holds_M: Mask = np.any(own_MV[:, is_allowed_V] > 0.0, axis=1)
        return holds_M

    def stepped(self, from_NP: Array, to_NP: Array, rng: Generator) -> Array:
        """Return `to_NP`, with moves that would snap back made a whole step.

        A category is drawn afresh half of the time and stays otherwise.
        """
        stepped_NP = to_NP.copy()
        for index, parameter in enumerate(self.searched):
            count = len(parameter.centre_V)
            if count == 0:
                continue
            old_N = parameter.index(from_NP[:, index])
            if parameter.categorical:
                fresh_N = rng.integers(count, size=len(old_N))
                new_N = np.where(rng.random(len(old_N)) < 0.5, fresh_N, old_N)
            else:
                new_N = parameter.index(to_NP[:, index])
                aside_N = old_N + np.where(rng.random(len(old_N)) < 0.5, 1, -1)
                new_N = np.where(new_N == old_N, np.clip(aside_N, 0, count - 1), new_N)
            stepped_NP[:, index] = parameter.centre_V[new_N]
        for together in self.together:
            if together.shares.zeros:
                away_NK = rng.random((len(from_NP), len(together.index_K))) < TO_ZERO
                stepped_NP[:, together.index_K] *= ~away_NK
        return stepped_NP


@lru_cache(maxsize=256)
def _centres(domain: Domain) -> Array:
    """Return the positions of the values; none for a continuous or a very fine domain."""
    if (
        isinstance(domain, Constant | Share)
        or domain.count is None
        or domain.count > MAX_GRID_VALUES
    ):
        return np.empty(0)
    centre_V = np.array([domain.to_unit(value) for value in domain.grid(2)])
    centre_V.setflags(write=False)
    return centre_V


def _requirements(space: Space, name: str) -> list[tuple[int, Array]]:
    """Return the values of other parameters that keep a parameter active.

    A required constant is replaced by its own requirements.
    """
    requirements: list[tuple[int, Array]] = []
    for other, allowed in space[name].when.items():
        domain = space[other]
        if isinstance(domain, Constant):
            requirements += _requirements(space, other)  # a Space refuses any other value of it
        else:
            places = np.array([domain.to_unit(value) for value in allowed])
            requirements.append((space.searched.index(other), places))
    return requirements


def units(space: Space, configurations: Sequence[Params]) -> Array:
    """Return the unit rows (N x P) of configurations in user units."""
    rows = [space.encode(params) for params in configurations]
    return cast(Array, np.array(rows).reshape(len(rows), len(space.searched)))
