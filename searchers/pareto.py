"""Pareto fronts: the results that no other result dominates, and the volume that they cover.

Axes: N results, K objectives. Losses are lower-is-better; NaN counts as infinitely bad.
Source of the order within a front, an epsilon-net: Schmucker et al., Multi-objective Asynchronous
Successive Halving (2021), section 3.2.
"""

from collections.abc import Iterator
from operator import le

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
HUGE = 1e300  # stands for infinity where distances are compared


def dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Return whether `one` is nowhere worse than `other` and somewhere better.

    Neither may have NaN.
    """
    return one != other and all(map(le, one, other))


def fronts(losses_NK: ArrayLike) -> NDArray[np.intp]:
    """Return the number of each result's front, (N,): 0 for those that none dominates.

    Front 1 is what none dominates once front 0 is taken away, and so on. Equal results share a
    front.
    """
    import moocore  # 50 ms, which commands that need `dominates` alone do not take

    losses = _as_array(losses_NK)
    # Only the order of losses counts, and moocore's ranks are wrong where some are infinite.
    levels = [np.unique(loss_N, return_inverse=True)[1] for loss_N in losses.T]
    rank_N = moocore.pareto_rank(np.column_stack(levels)) if len(losses) else np.empty(0)
    return rank_N.astype(np.intp)


def order(losses_NK: ArrayLike) -> NDArray[np.intp]:
    """Return the indices of the results, (N,), front by front, each in `spread_order`."""
    losses = _as_array(losses_NK)
    rank_N = fronts(losses)
    index_lists = [np.flatnonzero(rank_N == front) for front in range(rank_N.max(initial=-1) + 1)]
    ordered = [index_F[spread_order(losses[index_F])] for index_F in index_lists]
    return np.concatenate(ordered) if ordered else np.empty(0, dtype=np.intp)


def spread_order(losses_NK: ArrayLike) -> NDArray[np.intp]:
    """Return the indices of a front's results, (N,), such that any first few cover it well.

    The first is the middle: the least sum of losses, each scaled to [0, 1] over its range. Each
    next result is the one furthest from those before it. Equal results follow in the order given.
    """
    return np.fromiter(spreading(losses_NK), dtype=np.intp)


def spreading(losses_NK: ArrayLike) -> Iterator[int]:
    """Yield the indices of `spread_order`, each computed on demand, in time N."""
    scaled = _scaled(_as_array(losses_NK))
    if not len(scaled):
        return
    index = int(scaled.sum(axis=1).argmin())
    distance_N = np.full(len(scaled), np.inf)
    scaled_KN = np.ascontiguousarray(scaled.T)  # in this layout a step takes half the time
    for _ in range(len(scaled) - 1):
        yield index
        step_N = np.sqrt(np.square(scaled_KN - scaled_KN[:, index, None]).sum(axis=0))
        np.minimum(distance_N, step_N, out=distance_N)
        distance_N[index] = -1.0  # the minimum keeps it, as no distance is less
        index = int(distance_N.argmax())
    yield index


def hypervolume(losses_NK: ArrayLike, reference_K: ArrayLike) -> float:
    """Return the volume that the results dominate within the reference point; 0: none is within.

    Exact, in the product of the objectives' units.

    Raises:
        ValueError: the reference has another number of objectives than the results.
    """
    import moocore

    losses, reference = _as_array(losses_NK), np.asarray(reference_K, dtype=np.float64)
    if len(losses) and reference.shape != losses.shape[1:]:
        raise ValueError(
            f"hypervolume: the reference is {reference.tolist()}; "
            f"give one number for each of {losses.shape[1]} objectives"
        )
    within = losses[(losses < reference).all(axis=1)] if len(losses) else losses
    return float(moocore.hypervolume(within, ref=reference)) if len(within) else 0.0


def _as_array(losses_NK: ArrayLike) -> Array:
    losses = np.asarray(losses_NK, dtype=np.float64)
    if not losses.size:
        losses = losses.reshape(0, losses.shape[-1])
    return np.where(np.isnan(losses), np.inf, losses)


def _scaled(losses: Array) -> Array:
    """Scale each objective to [0, 1] between its least and its largest; 0 where all are equal."""
    halves = np.clip(losses, -HUGE, HUGE) / 2  # so that no difference overflows
    low_K, high_K = halves.min(axis=0, initial=HUGE), halves.max(axis=0, initial=-HUGE)
    span_K = np.where(high_K > low_K, high_K - low_K, 1.0)
    scaled: Array = (halves - low_K) / span_K
    return scaled
