"""The comparison of results: at one step, the furthest that enough trials have reached.

A loss after one epoch says little beside a loss after twenty-seven, so a model that knows no
fidelity learns from the highest step at which there are enough results, as BOHB does.
Source: Falkner et al., BOHB: Robust and Efficient Hyperparameter Optimization at Scale (2018),
section 3.2: the largest budget with at least d + 1 results.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from searchers.searcher import Observation

# Reasons of failures that are not the configuration's fault: nothing is learned from them.
NO_FAULT = frozenset({"infra", "preempt", "killed", "budget"})
END = math.inf  # stands for the step of a result without a step
PAIRS = 200  # trials, at most, that tell what losses of lower steps become
LARGEST = 1e100  # in a regression: beyond, sums overflow


@dataclass(frozen=True)
class Scored:
    """A trial's loss at the common step; None: it failed or diverged, worse than any loss."""

    observation: Observation
    loss: float | None  # of several objectives, of the first
    losses: tuple[float, ...] = ()  # of each objective; empty: it failed, or there is one objective


def comparable(
    history: Sequence[Observation], enough: int, with_stopped: bool = False
) -> list[Scored]:
    """Return the trials that can be compared as equals, in the order of the history.

    The common step is the highest step at which trials ended, or wait, and that at least `enough`
    trials have reached; where no step has so many, the lowest. A trial that went further counts
    with its loss at that step, running trials included. A trial that ended earlier is left out: it
    was stopped by a comparison with its rivals at another step. Failed trials count as the worst at
    every step, unless the failure was not their fault. Results without a step form a group of their
    own, which is used where it is the larger one.

    Args:
        history: every trial so far.
        enough: the number of trials.
        with_stopped: count trials that ended earlier, with the loss that they would have had as
            those tell that reached the common step. A model that predicts losses everywhere needs
            them, or it proposes the like of stopped trials again and again; TPE, which compares
            densities, ended behind with them on learning curves of LCBench (10 of 16 sweeps to 3).
    """
    last_steps = [None if _is_at_fault(seen) else _last_step(seen) for seen in history]
    common_step = _common_step(history, last_steps, enough)
    if common_step is None:
        return [Scored(seen, None) for seen in history if _is_at_fault(seen)]
    reached = [
        seen
        for seen, step in zip(history, last_steps, strict=True)
        if step is not None and step >= common_step
    ]
    levels = _Levels(reached[-PAIRS:], common_step)
    scored = []
    for seen, step in zip(history, last_steps, strict=True):
        if _is_at_fault(seen):
            scored.append(Scored(seen, None))
        elif step is None or (step < common_step and not with_stopped):
            continue
        elif losses := levels.losses(seen, step):
            scored.append(Scored(seen, losses[0], losses if len(losses) > 1 else ()))
    return scored


@dataclass
class _Levels:
    """The losses of trials at the common step; those of stopped trials as they would have been."""

    reached: Sequence[Observation]  # trials that reached the common step
    common_step: float
    _maps: dict[tuple[float, int], Callable[[float], float] | None] = field(default_factory=dict)

    def losses(self, seen: Observation, step: float) -> tuple[float, ...]:
        """Return the loss of each objective; empty: nothing can be said."""
        if step >= self.common_step:
            if self.common_step == END:
                loss = None if seen.curve else primary_loss(seen)
            else:
                loss = _last_loss(seen.curve, self.common_step)
            if loss is not None and step == self.common_step:
                loss = seen.mean_loss(loss)
            return () if loss is None else self._known(seen, loss)
        has_curves = bool(seen.curves) or len(seen.losses) < 2
        if seen.state == "pending" or self.common_step == END or not has_curves:
            return ()
        mapped = []
        for index, curve in enumerate((seen.curve, *seen.curves)):
            loss, level = _last_loss(curve, step), self._map(step, index)
            if loss is None or level is None:
                return ()
            mapped.append(level(loss))
        return () if any(map(math.isnan, mapped)) else tuple(mapped)

    def _known(self, seen: Observation, first: float) -> tuple[float, ...]:
        if not seen.curves:
            return (first, *seen.losses[1:])
        losses = [first]
        for curve in seen.curves:
            loss = _last_loss(curve, self.common_step)
            if loss is None:
                return ()
            losses.append(loss)
        return tuple(losses)

    def _map(self, step: float, index: int) -> Callable[[float], float] | None:
        """Return how losses of an objective at a step become those at the common step."""
        if (step, index) not in self._maps:
            pairs = [
                (here, later)
                for seen in self.reached
                for curve in (seen.curve, *seen.curves)[index : index + 1]
                if (here := _last_loss(curve, step)) is not None
                and (later := _last_loss(curve, self.common_step)) is not None
            ]
            self._maps[step, index] = _isotonic(pairs) if pairs else None
        return self._maps[step, index]


def _isotonic(pairs: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    """Return the isotonic regression of pairs; beyond the worst it goes on by differences.

    NaN for a loss that is better than all of the pairs: not for its loss was that trial stopped.
    """
    from scipy.optimize import isotonic_regression

    here_P, later_P = np.clip(np.array(sorted(pairs)).T, -LARGEST, LARGEST)
    later_P = isotonic_regression(later_P).x

    def mapped(loss: float) -> float:
        if loss < here_P[0]:
            return math.nan
        return float(np.interp(loss, here_P, later_P) + max(loss - here_P[-1], 0.0))

    return mapped


def _is_at_fault(seen: Observation) -> bool:
    return seen.state == "failed" and seen.reason not in NO_FAULT


def _last_step(seen: Observation) -> float | None:
    """Return the last step with a finite loss; None: there is none."""
    for step, loss in reversed(seen.curve):
        if math.isfinite(loss):
            return step
    end = primary_loss(seen)
    return END if seen.state == "done" and end is not None and math.isfinite(end) else None


def primary_loss(seen: Observation) -> float | None:
    """Return the loss, with several objectives the first."""
    return seen.losses[0] if seen.losses else seen.loss


def _common_step(
    history: Sequence[Observation], reached: Sequence[float | None], enough: int
) -> float | None:
    """Return the step at which to compare; None: there is no result."""
    count_at = Counter(last_step for last_step in reached if last_step is not None)
    without_step = count_at.pop(END, 0)
    ended = {
        last_step
        for seen, last_step in zip(history, reached, strict=True)
        if seen.state != "pending"
    }
    common, trials = None, 0
    for step in sorted(count_at, reverse=True):
        trials += count_at[step]
        if step in ended or count_at[step] > 1:  # not the step of a lone running trial
            common = step
            if trials >= enough:
                break
    return END if without_step and without_step >= trials else common


def _last_loss(curve: Sequence[tuple[int, float]], step: float) -> float | None:
    """Return the last loss of a curve up to a step; None: there is none."""
    index = bisect_right(curve, step, key=lambda point: point[0])
    if index == 0 or not math.isfinite(curve[index - 1][1]):
        return None
    return curve[index - 1][1]
