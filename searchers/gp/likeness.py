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
    values = list(space[name].grid(1))
    domains = (space[other] for other in space)
    tied = [domain.values for domain in domains if isinstance(domain, Tied) and domain.key == name]
    blocks = [_numbers(member) for member in (values, *tied) if _are_numbers(member)]
    if not tied or not blocks:
        return np.empty((len(values), 0))
    # Texts that all differ are names: they tell nothing of what they stand for.
    blocks += [_kinds(member) for member in tied if not _are_numbers(member) and _repeats(member)]
    return math.sqrt((1.0 - LABEL) / len(blocks)) * np.hstack(blocks)


def _are_numbers(member: Sequence[Value]) -> bool:
    return all(map(is_number, member)) and len({*member}) > 1


def _repeats(member: Sequence[Value]) -> bool:
    return 1 < len({*map(identity, member)}) < len(member)


def _numbers(member: Sequence[Value]) -> Array:
    """Return the places of numbers, from -1/2 to 1/2 (0: inactive), V x 1.

    The scale is linear or logarithmic, whichever spreads the numbers more evenly.
    """
    value_V = np.array(member, dtype=np.float64)
    scales = [_to_unit(value_V)]
    if value_V.min() > 0.0:
        scales.append(_to_unit(np.log(value_V)))
    unit_V = min(scales, key=lambda unit_V: float((np.diff(np.unique(unit_V)) ** 2).sum()))
    return unit_V[:, None] - 0.5


def _to_unit(value_V: Array) -> Array:
    low, high = value_V.min(), value_V.max()
    unit_V: Array = (value_V / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0)  # no overflow
    return unit_V


def _kinds(member: Sequence[Value]) -> Array:
    """Return the places of values of which any two that differ are 1 apart, a column for each."""
    kinds = [*dict.fromkeys(map(identity, member))]
    is_kind = [[identity(value) == kind for kind in kinds] for value in member]
    return np.array(is_kind) / math.sqrt(2.0)
