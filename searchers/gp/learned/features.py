"""Features of a configuration by the roles of its parameters, on scales that all spaces share.

A number has three features, Legendre polynomials of its position on the role's scale; a choice has
one for each value. Parameters that share a role are averaged. An inactive parameter has features
of 0, and one without a role has none.

Axes: M points, D model columns, F features, K features of one parameter, G places of one column
(its values if it is a category, else a grid).
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from searchers.gp.encoding import Encoding
from searchers.gp.kernels import Array, Index
from searchers.gp.learned.roles import FAMILIES, NumberRole, Roles
from searchers.space import Choice, Domain, Space
from searchers.values import is_number

GRID = np.linspace(0.0, 1.0, 65)  # positions of a number's values in the unit interval
SMALLEST = 1e-12  # stands for 0 on a logarithmic scale


@dataclass(frozen=True)
class Block:
    """The features of one parameter at the places of its column."""

    parameter: int
    names: tuple[str, ...]
    first: int  # model column
    categorical: bool  # there is a column for each place; else the places are GRID
    value_GK: Array


@dataclass(frozen=True)
class Features:
    """The features of one space."""

    encoding: Encoding
    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, space: Space, encoding: Encoding, roles: Roles) -> "Features":
        return cls(encoding, tuple(_blocks(space, encoding, roles)))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for block in self.blocks for name in block.names)

    def values(self, x_MD: Array) -> Array:
        """Return the features, M x F."""
        return np.hstack([self._values(block, x_MD) for block in self.blocks])

    def _values(self, block: Block, x_MD: Array) -> Array:
        if block.categorical:  # where it is inactive, none of its columns is set
            return (x_MD[:, block.first : block.first + len(block.value_GK)] > 0.0) @ block.value_GK
        x_M = x_MD[:, block.first]
        value_MK = np.stack([np.interp(x_M, GRID, value_G) for value_G in block.value_GK.T], 1)
        value_MK[~self.encoding.is_active(x_MD, block.parameter)] = 0.0
        return value_MK


def _blocks(space: Space, encoding: Encoding, roles: Roles) -> Iterator[Block]:
    roles_of_family = FAMILIES[roles.family].roles
    sharers = Counter(roles.of.values())
    for index, name in enumerate(space.searched):
        if name not in roles.of:
            continue
        role, first = roles.of[name], int(encoding.first_column_P[index])
        kind, domain, parameter = roles_of_family[role], space[name], encoding.searched[index]
        if isinstance(kind, NumberRole):
            names = tuple(f"{role}^{power}" for power in (1, 2, 3))
            z_G = _positions(domain, kind)
            legendre = [z_G, (3.0 * z_G**2 - 1.0) / 2.0, (5.0 * z_G**3 - 3.0 * z_G) / 2.0]
            value_GK = np.stack(legendre, 1)
        else:
            assert isinstance(domain, Choice)
            names = tuple(f"{role}={kind.value(value)}" for value in domain.values)
            value_GK = np.eye(len(names))
        yield Block(index, names, first, parameter.categorical, value_GK / sharers[role])


@lru_cache(maxsize=256)
def _positions(domain: Domain, role: NumberRole) -> Array:
    """Return where the values at the places of a column are on the role's scale, -1 to 1."""
    if isinstance(domain, Choice):
        values = list(domain.values)
    else:
        values = [domain.from_unit(place) for place in GRID]
    value_G = np.array([float(value) for value in values if is_number(value)])
    low, high = role.low, role.high
    if role.log:
        value_G, low, high = np.log(np.maximum(value_G, SMALLEST)), math.log(low), math.log(high)
    z_G: Array = np.clip(2.0 * (value_G - low) / (high - low) - 1.0, -1.0, 1.0)
    if isinstance(domain, Choice) and domain.ordered:
        return np.interp(GRID, [domain.to_unit(value) for value in values], z_G)
    return z_G


def index_of(names: Sequence[str], known: Sequence[str]) -> Index:
    """Return the place of each name among the known ones; -1: it is unknown."""
    place = {name: index for index, name in enumerate(known)}
    return np.array([place.get(name, -1) for name in names], dtype=np.intp)
