"""What a problem is: a space, a loss without noise, and the noise that a searcher is told.

Axes: C configurations, F features.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from searchers import Choice, Space

Array = NDArray[np.float64]
Params = Mapping[str, Any]  # a configuration; inactive parameters are absent
Loss = Callable[[Params], float]


@dataclass(frozen=True)
class Problem:
    """A loss over a space; lower is better."""

    name: str
    family: str
    space: Space
    loss: Loss  # without noise
    noise: float = 0.0  # standard deviation of what is added to the loss that is told


def features(space: Space, configurations: Sequence[Params]) -> Array:
    """Numbers in [0, 1] for a configuration, C x F.

    Ranges and ordered choices give their place, other choices a column for each value, conditional
    parameters one more that says whether they are active.
    """
    columns: list[Array] = []
    for name in space.searched:
        domain = space[name]
        active_C = np.array([name in params for params in configurations])
        unit_C = np.full(len(configurations), 0.5)
        unit_C[active_C] = [domain.to_unit(one[name]) for one in configurations if name in one]
        if isinstance(domain, Choice) and not domain.ordered:
            index_C = (unit_C * domain.count).astype(int)
            columns += [active_C * (index_C == index) for index in range(domain.count)]
        else:
            columns.append(unit_C)
        if domain.when:
            columns.append(active_C)
    return np.array(columns, dtype=float).T
