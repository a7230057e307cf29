"""Which results can be compared: those at one step, the furthest that enough trials have reached.

A loss after one epoch says little beside one after twenty-seven, so a model that knows no fidelity
learns from the highest step at which there are enough results, as BOHB does.
Source: Falkner et al., BOHB: Robust and Efficient Hyperparameter Optimization at Scale (2018),
section 3.2: the largest budget with at least d + 1 results.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from searchers.searcher import Observation

# Ends for which the configuration is not to blame: nothing is learned from them.
NO_FAULT = frozenset({"infra", "preempt", "killed", "budget"})
END = math.inf  # stands for the step of a result that was told without one


@dataclass(frozen=True)
class Scored:
    """A trial's loss at the common step; None: it failed or diverged, worse than any loss.

    With several objectives `loss` is the first one's, and `losses` are those at the last step of
    the trial, since a curve keeps the first one's alone.
    """

    observation: Observation
    loss: float | None

    @property
    def losses(self) -> tuple[float, ...]:
        """Of each objective; empty: it failed, or there is one objective."""
        return () if self.loss is None else self.observation.losses


def comparable(history: Sequence[Observation], enough: int) -> list[Scored]:
    """The trials that can be compared as equals, in the order of the history.

    The common step is the highest at which trials ended, or wait, and that at least `enough` have
    reached; where none has so many, the lowest. A trial that went further counts with its loss at
    that step, running ones included. One that ended before it is left out: that it was stopped
    compares it with its rivals at another step. Failed ones count as the worst at every step,
    unless the failure was not their own. Results told without a step are a group of their own,
    which counts where it is the larger one.
    """
    reached = [None if _is_at_fault(seen) else _reach(seen) for seen in history]
    level = _level(history, reached, enough)
    scored = []
    for seen, reach in zip(history, reached, strict=True):
        if _is_at_fault(seen):
            scored.append(Scored(seen, None))
        elif level is not None and reach is not None and reach >= level:
            loss = _loss_at(seen, level)
            if loss is not None:
                scored.append(Scored(seen, loss))
    return scored


def _is_at_fault(seen: Observation) -> bool:
    return seen.state == "failed" and seen.reason not in NO_FAULT


def _reach(seen: Observation) -> float | None:
    """The last step with a loss; None: it has none that is finite."""
    for step, loss in reversed(seen.curve):
        if math.isfinite(loss):
            return step
    end = told(seen)
    return END if seen.state == "done" and end is not None and math.isfinite(end) else None


def told(seen: Observation) -> float | None:
    """The loss, of the first objective where there are several."""
    return seen.losses[0] if seen.losses else seen.loss


def _level(
    history: Sequence[Observation], reached: Sequence[float | None], enough: int
) -> float | None:
    """The step at which to compare; None: there is no result."""
    standing = Counter(reach for reach in reached if reach is not None)
    whole = standing.pop(END, 0)
    ended = {reach for seen, reach in zip(history, reached, strict=True) if seen.state != "pending"}
    level, there = None, 0
    for step in sorted(standing, reverse=True):
        there += standing[step]
        if step in ended or standing[step] > 1:  # not where a lone running trial happens to be
            level = step
            if there >= enough:
                break
    return END if whole and whole >= there else level


def _loss_at(seen: Observation, level: float) -> float | None:
    """The last loss that a trial had reported when it reached the level."""
    if level == END:
        return None if seen.curve else told(seen)
    index = bisect_right(seen.curve, level, key=lambda point: point[0])
    if index == 0 or not math.isfinite(seen.curve[index - 1][1]):
        return None
    return seen.curve[index - 1][1]
