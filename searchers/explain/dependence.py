"""Partial dependence: the predicted loss along one or two parameters, averaged over the others.

Axes: G grid points, S sampled configurations, P searched parameters.
Sources: Friedman, Annals of Statistics 29 (2001), section 8.2, for the mean; Moosbauer et al.,
Explaining Hyperparameter Optimization via Partial Dependence Plots (NeurIPS 2021), section 4, for
the deviation: the root of the mean variance, covariances between configurations left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from searchers.explain.belief import Belief
from searchers.gp.encoding import Encoding, Points
from searchers.gp.kernels import Array
from searchers.space import Choice, Domain, Space
from searchers.values import Value, identity

SAMPLES = 128  # configurations that a grid point is averaged over; a power of 2


@dataclass(frozen=True)
class Dependence:
    """Predictions at every combination of the values of one or two parameters.

    The arrays have an axis for each name. NaN: the parameters are never active together there.
    """

    names: tuple[str, ...]
    grids: tuple[tuple[Value, ...], ...]  # the values of each name, in the user's units
    mean: Array
    deviation: Array

    def to_dict(self) -> dict[str, object]:
        """Return the dependence as JSON, with null instead of NaN."""
        return {
            "names": list(self.names),
            "grids": [list(grid) for grid in self.grids],
            "mean": _without_nan(self.mean),
            "deviation": _without_nan(self.deviation),
        }


def dependence(belief: Belief, space: Space, names: Sequence[str], resolution: int) -> Dependence:
    """Average losses over the configurations in which the named parameters are active.

    Args:
        names: one searched parameter, or two.
        resolution: grid points of a range; a choice has all of its values.

    Raises:
        ValueError: the parameters are never active together.
    """
    from scipy.stats import qmc

    grids = [_grid(space[name], resolution) for name in names]
    columns = [space.searched.index(name) for name in names]
    unit_SP = qmc.Sobol(len(space.searched), scramble=True, rng=0).random(SAMPLES)
    if space.shares:
        unit_SP = space.drawn(unit_SP)
    held_P = np.isin(np.arange(len(space.searched)), columns)
    for column in columns:
        _activate(belief.encoding, unit_SP, column)
    cells = []
    for values in product(*grids):
        for name, column, value in zip(names, columns, values, strict=True):
            unit_SP[:, column] = space[name].to_unit(value)
        points = belief.encoding.snap(unit_SP, held_P)
        cells.append(points.take(np.flatnonzero(points.active_NP[:, columns].all(axis=1))))
    count_G = np.array([len(cell) for cell in cells])
    if not count_G.any():
        raise ValueError(f"explain: {' and '.join(names)} are never active together")
    mean_N, deviation_N = belief.predict(_concatenated(cells))
    cell_N = np.repeat(np.arange(len(cells)), count_G)
    with np.errstate(invalid="ignore"):  # 0 / 0 where nothing is active
        mean_G = np.bincount(cell_N, mean_N, len(cells)) / count_G
        variance_G = np.bincount(cell_N, deviation_N**2, len(cells)) / count_G
    shape = [len(grid) for grid in grids]
    return Dependence(
        tuple(names),
        tuple(tuple(grid) for grid in grids),
        mean_G.reshape(shape),
        np.sqrt(variance_G).reshape(shape),
    )


def _grid(domain: Domain, resolution: int) -> list[Value]:
    """Return all values of a choice or a small range, else `resolution` of them, ends included."""
    if isinstance(domain, Choice) or (domain.count is not None and domain.count <= resolution):
        return list(domain.grid(resolution))
    units = np.linspace(0.0, 1.0, resolution).tolist()
    values = (domain.from_unit(unit) for unit in units)
    return [*{identity(value): value for value in values}.values()]


def _activate(encoding: Encoding, unit_SP: Array, column: int) -> None:
    """Move the parents of a parameter, in place, to values that keep it active."""
    for parent, allowed_V in encoding.searched[column].requires:
        index_S = (unit_SP[:, parent] * len(allowed_V)).astype(np.intp)
        unit_SP[:, parent] = allowed_V[np.minimum(index_S, len(allowed_V) - 1)]
        _activate(encoding, unit_SP, parent)


def _concatenated(cells: Sequence[Points]) -> Points:
    return Points(
        np.vstack([cell.unit_NP for cell in cells]), np.vstack([cell.active_NP for cell in cells])
    )


def _without_nan(array: Array) -> object:
    boxed = array.astype(object)
    boxed[np.isnan(array)] = None
    return boxed.tolist()
