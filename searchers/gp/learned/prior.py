"""A prior of the loss over the roles of hyperparameters, learned from tuning tables.

Each family of models has a mean: a sum of one function of each parameter (features.py), in units of
a table's standardized losses. `benchmarks/prior/learn.py` makes `coefficients.json`, with each
coefficient's mean and its deviation from problem to problem. Products of two parameters' features
were tried and left out: see benchmarks/gp-experiments.md.

Axes: M points, D model columns, F features.
Source: Wang et al., Pre-trained Gaussian Processes for Bayesian Optimization (JMLR 2024), of which
this keeps the learned mean, with features in place of a network.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from types import MappingProxyType

import numpy as np
from numpy.random import Generator

from searchers.gp.encoding import Encoding, Mask
from searchers.gp.kernels import Array, Index
from searchers.gp.learned.features import GRID, Features, index_of
from searchers.gp.learned.roles import Names, roles_of
from searchers.space import Space

UNKNOWN_DEVIATION = 0.2  # of the coefficient of a feature that no table had


@dataclass(frozen=True)
class Coefficients:
    """The coefficients of one family, over all problems."""

    names: tuple[str, ...]
    mean_F: Array
    deviation_F: Array


@dataclass(frozen=True)
class LearnedPrior:
    """Prior on a space before its first trial: features, and their coefficients."""

    family: str
    features: Features
    mean_F: Array
    deviation_F: Array

    @classmethod
    def of(
        cls, space: Space, names: Names = MappingProxyType({}), without: Collection[str] = ()
    ) -> "LearnedPrior | None":
        """Return the prior of a space; None: none is known for its parameters.

        Args:
            space: the space.
            names: see `roles_of`.
            without: parameters about which the user knows better.
        """
        roles = roles_of(space, names)
        fitted = load().get(roles.family) if roles else None
        if roles is None or fitted is None:
            return None
        of = {name: role for name, role in roles.of.items() if name not in without}
        if not of:
            return None
        features = Features.of(space, Encoding.of(space), replace(roles, of=of))
        place_F = index_of(features.names, fitted.names)
        is_known_F = place_F >= 0
        mean_F = np.where(is_known_F, fitted.mean_F[place_F], 0.0)
        deviation_F = np.where(is_known_F, fitted.deviation_F[place_F], UNKNOWN_DEVIATION)
        return cls(roles.family, features, mean_F, deviation_F)

    @cached_property
    def mean(self) -> "Mean":
        """The expected loss, up to a constant."""
        return Mean.of(self.features, self.mean_F)

    def draws(self, x_MD: Array, scenarios: int, rng: Generator) -> Array:
        """Return the losses of random problems of the family, M x scenarios."""
        shape = (len(self.mean_F), scenarios)
        coefficient_FS = self.mean_F[:, None] + self.deviation_F[:, None] * rng.normal(size=shape)
        return self.features.values(x_MD) @ coefficient_FS


@dataclass(frozen=True)
class Mean:
    """A sum of functions of one parameter each: curves of numbers, values of categories.

    N numbers; a curve is cubic between the places of GRID.
    """

    encoding: Encoding
    parameter_N: Index
    curve_GN: Array
    category_D: Array  # by model column; 0 where the column is no category's
    offset: float

    @classmethod
    def of(cls, features: Features, weight_F: Array) -> "Mean":
        """Return the linear function of features."""
        encoding = features.encoding
        category_D = np.zeros(len(encoding.parameter_D))
        numbers, curves, first = list[int](), [np.empty((len(GRID), 0))], 0
        for block in features.blocks:
            curve_G = block.value_GK @ weight_F[first : first + len(block.names)]
            first += len(block.names)
            if block.categorical:
                category_D[block.first : block.first + len(curve_G)] = curve_G
            else:
                numbers.append(block.parameter)
                curves.append(curve_G[:, None])
        parameter_N = np.array(numbers, dtype=np.intp)
        return cls(encoding, parameter_N, np.hstack(curves), category_D, 0.0)

    def __call__(self, x_MD: Array) -> Array:
        return self.with_gradient(x_MD)[0]

    def with_gradient(self, x_MD: Array) -> tuple[Array, Array]:
        """Return the value, and its gradient by the model columns; by a category's it is 0."""
        column_N = self.encoding.first_column_P[self.parameter_N]
        place_MN = x_MD[:, column_N] * (len(GRID) - 1)
        low_MN = np.clip(place_MN.astype(np.intp), 0, len(GRID) - 2)
        t = place_MN - low_MN
        ends = (low_MN, np.arange(len(column_N))), (low_MN + 1, np.arange(len(column_N)))
        (low, high), (rise, fall) = (
            tuple(table_GN[end] for end in ends) for table_GN in (self.curve_GN, self.slope_GN)
        )
        active_MN = self._active(x_MD)
        # Hermite's cubic: with kinks, an ascent by gradient took twice as many steps.
        step = t * t * (3.0 - 2.0 * t)
        curve_MN = low + step * (high - low) + t * (1.0 - t) * ((1.0 - t) * rise - t * fall)
        slope_MN = 6.0 * t * (1.0 - t) * (high - low)
        slope_MN += (1.0 - t) * (1.0 - 3.0 * t) * rise + t * (3.0 * t - 2.0) * fall
        gradient_MD = np.zeros(x_MD.shape)
        gradient_MD[:, column_N] = slope_MN * active_MN * (len(GRID) - 1)
        value_M: Array = (curve_MN * active_MN).sum(axis=1)
        return value_M + (x_MD > 0.0) @ self.category_D - self.offset, gradient_MD

    @cached_property
    def slope_GN(self) -> Array:
        """The slopes of the curves, by places."""
        slope_GN: Array = np.gradient(self.curve_GN, axis=0)
        return slope_GN

    def scaled(self, weight: float, offset: float) -> "Mean":
        """Return weight * (this function - offset)."""
        return replace(
            self,
            curve_GN=weight * self.curve_GN,
            category_D=weight * self.category_D,
            offset=weight * (self.offset + offset),
        )

    def _active(self, x_MD: Array) -> Mask:
        """Return which numbers are active, M x N."""
        active_MN = np.ones((len(x_MD), len(self.parameter_N)), dtype=np.bool_)
        for number, parameter in enumerate(self.parameter_N):
            if self.encoding.searched[parameter].requires:
                active_MN[:, number] = self.encoding.is_active(x_MD, parameter)
        return active_MN


Learned = Mapping[str, Coefficients]


@cache
def load() -> Learned:
    """Return the coefficients that we ship, by family."""
    text = files(__package__).joinpath("coefficients.json").read_text(encoding="utf-8")
    learned = {}
    for family, table in json.loads(text).items():
        pair_F2 = np.array(list(table.values()), dtype=np.float64).reshape(-1, 2)
        learned[family] = Coefficients(tuple(table), pair_F2[:, 0], pair_F2[:, 1])
    return learned
