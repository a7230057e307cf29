"""Where the mappings of a choice lie: the more alike two of them are, the nearer.

A choice among mappings (searchers/ties.py) is the choice of a key, with other members tied to it.
The members say how alike the mappings are. Two are apart by

    d2 = LABEL + (1 - LABEL) / K sum_k d2_k

with d2_k their squared distance in member k: numbers lie in [0, 1], other values are 1 apart or
equal. So no two are further apart than 1, as any two values of another choice are.
Source: Gower, A General Coefficient of Similarity and Some of Its Properties (1971), with squares.

Axes: V values of the key, K members that tell them apart, W columns.
"""

import math
from collections.abc import Sequence

import numpy as np

from searchers.domains import Tied
from searchers.gp.kernels import Array
from searchers.space import Space
from searchers.values import Value, identity, is_number

LABEL = 0.1  # squared distance of two values whose members are equal


def places(space: Space, name: str) -> Array:
    """Return where the values of a choice lie, V x W, LABEL aside; W is 0 if nothing tells it."""
    domains = (space[other] for other in space)
    tied = [domain.values for domain in domains if isinstance(domain, Tied) and domain.key == name]
    values = space[name].grid(1)
    numbers, kinds = list[Array](), list[Array]()
    for member in (values, *tied) if tied else ():
        place_V1 = _numbers(member)
        if place_V1 is not None:
            numbers.append(place_V1)
        elif (
            1 < len({*map(identity, member)}) < len(member)
        ):  # texts that all differ are names, and tell nothing
            labels = [*dict.fromkeys(map(identity, member))]
            is_label = [[identity(value) == label for label in labels] for value in member]
            kinds.append(np.array(is_label) / math.sqrt(2.0))  # any two that differ are 1 apart
    if not numbers:
        return np.empty((len(values), 0))
    share = (1.0 - LABEL) / len(numbers + kinds)
    return math.sqrt(share) * np.hstack(numbers + kinds)


def _numbers(member: Sequence[Value]) -> Array | None:
    """Return the places of numbers, from -1/2 to 1/2 (0: inactive), V x 1.

    The scale is linear or logarithmic, whichever spreads the numbers more evenly. None: not all are
    numbers, or all are equal.
    """
    value_V = np.array([value for value in member if is_number(value)], dtype=np.float64)
    if len(value_V) < len(member) or value_V.min() == value_V.max():
        return None
    scales = [value_V / np.abs(value_V).max()]
    if value_V.min() > 0.0:
        scales.append(np.log(value_V))
    units = [(x_V - x_V.min()) / np.ptp(x_V) for x_V in scales if np.ptp(x_V) > 0.0]
    unit_V: Array = min(units, key=lambda unit_V: float((np.diff(np.unique(unit_V)) ** 2).sum()))
    return unit_V.reshape(-1, 1) - 0.5
