"""Losses of any size: those that are all huge are seen in a larger unit, so that squares fit."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest
from statistics import median

from searchers.searcher import Observation

LARGE = 1e50  # a typical loss up to here is left as it is


def in_range(history: Sequence[Observation]) -> Sequence[Observation]:
    """Return trials with losses and excesses in units in which none of the typical ones is huge.

    Those of 1e200 are then told apart as those of 1 are; a single one of 1e200 among those of 1
    changes nothing.
    """
    units = _units(
        seen.losses or (math.nan if seen.loss is None else seen.loss,) for seen in history
    )
    limits = _units(seen.excess for seen in history)
    if all(unit == 1 for unit in units + limits):
        return history
    return [replace(_in(seen, units), excess=_divided(seen.excess, limits)) for seen in history]


def _units(rows: Iterable[Sequence[float]]) -> list[float]:
    """Return the unit of each column: a power of 2, so that to divide by it is exact."""
    return [_unit(column) for column in zip_longest(*rows, fillvalue=math.nan)]


def _unit(losses: Iterable[float]) -> float:
    sizes = [abs(loss) for loss in losses if math.isfinite(loss)]
    typical = median(sizes) if max(sizes, default=0.0) > LARGE else 0.0
    return 2.0 ** (math.frexp(typical)[1] - 1) if typical > LARGE else 1.0


def _in(seen: Observation, units: Sequence[float]) -> Observation:
    first, *others = (
        tuple((step, loss / unit) for step, loss in curve)
        for curve, unit in zip((seen.curve, *seen.curves), units, strict=False)
    )
    return replace(
        seen,
        loss=None if seen.loss is None else seen.loss / units[0],
        losses=_divided(seen.losses, units),
        curve=first,
        curves=tuple(others),
        repeats=tuple((step, loss / units[0]) for step, loss in seen.repeats),
    )


def _divided(values: Sequence[float], units: Sequence[float]) -> tuple[float, ...]:
    return tuple(value / unit for value, unit in zip(values, units, strict=False))
