"""The user's beliefs about good values, as an acquisition term that fades with the trials.

A belief multiplies the acquisition by its density to the power of `STRENGTH` / trials: it leads at
first, and a wrong belief is outvoted later. Each density is 1 on average over the parameter's
range, so that a belief about a parameter says nothing of the branches where that parameter is
inactive.

Axes: M queries, D model columns, W columns of one parameter.
Source: Hvarfner et al., piBO: Augmenting Acquisition Functions with User Beliefs (2022), eq. 6.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from searchers.gp.encoding import Encoding, Parameter
from searchers.gp.kernels import Array
from searchers.names import nearest
from searchers.space import Space
from searchers.values import SpaceError, Value

STRENGTH = 10.0  # trials after which a belief has power 1; the paper takes a tenth of the budget


@dataclass(frozen=True)
class Belief:
    """A good value, and how far off it may be.

    Attributes:
        value: in the user's units.
        width: the standard deviation, in shares of the parameter's range on its own scale; of an
            unordered choice every other value is exp(-1 / (2 width^2)) as likely as this one.
    """

    value: Value
    width: float = 0.25

    def __post_init__(self) -> None:
        if not 0.001 <= self.width <= 100.0:
            raise ValueError(f"width is {self.width}; give a share of the range: 0.001 to 100")


def check(space: Space, priors: Mapping[str, Belief]) -> None:
    """Check that beliefs are about searched parameters, and values that they can have.

    Raises:
        SpaceError: one is not; the path is ("priors", NAME), and "value" where that is wrong.
    """
    for name, belief in priors.items():
        if name not in space.searched:
            kind = "a constant" if name in space else "no parameter of this space"
            raise SpaceError(("priors", name), f"is {kind}; {nearest(name, space.searched)}")
        if problem := space[name].problem(belief.value):
            raise SpaceError(("priors", name, "value"), problem)


@dataclass(frozen=True)
class LogPrior:
    """The sum of the beliefs' log densities, times `exponent`."""

    encoding: Encoding
    priors: Mapping[int, tuple[Array, float]]  # by parameter index: centre_W in its columns, width
    exponent: float

    @classmethod
    def of(cls, space: Space, priors: Mapping[str, Belief], trials: int) -> "LogPrior":
        """Return the beliefs about parameters, by name, after `trials` trials.

        Raises:
            SpaceError: see `check`.
        """
        check(space, priors)
        encoding = Encoding.of(space)
        centres = {
            (index := space.searched.index(name)): (
                encoding.searched[index].columns(np.array([space[name].to_unit(belief.value)]))[0],
                belief.width,
            )
            for name, belief in priors.items()
        }
        return cls(encoding, centres, STRENGTH / max(trials, 1))

    def __call__(self, x_MD: Array) -> Array:
        return self.with_gradient(x_MD)[0]

    def with_gradient(self, x_MD: Array) -> tuple[Array, Array]:
        value_M, gradient_MD = np.zeros(len(x_MD)), np.zeros(x_MD.shape)
        for index, (centre_W, width) in self.priors.items():
            first = self.encoding.first_column_P[index]
            columns = slice(first, first + len(centre_W))
            off_MW = (x_MD[:, columns] - centre_W) / width
            weight_M = self.exponent * self.encoding.is_active(x_MD, index)
            size = _log_mean_density(self.encoding.searched[index], centre_W, width)
            value_M += weight_M * (-0.5 * (off_MW**2).sum(axis=1) - size)
            gradient_MD[:, columns] -= weight_M[:, None] * off_MW / width
        return value_M, gradient_MD


def _log_mean_density(parameter: Parameter, centre_W: Array, width: float) -> float:
    """Return log of the mean of exp(-d^2 / (2 width^2)) over the range, or over the categories."""
    if parameter.categorical:
        own_V, place_W = np.split(centre_W, [len(parameter.centre_V)])
        d2_V = parameter.apart * (own_V == 0.0) + ((parameter.place_VW - place_W) ** 2).sum(axis=1)
        return math.log(np.exp(-0.5 * d2_V / width**2).mean())
    low, high = (ndtr((end - centre_W[0]) / width) for end in (0.0, 1.0))
    return math.log(width * math.sqrt(2.0 * math.pi) * (high - low))
