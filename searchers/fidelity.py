"""The comparison of results: at one step, the furthest that enough trials have reached.

A loss after one epoch says little beside a loss after twenty-seven, so a model that knows no
fidelity learns from the highest step at which there are enough results, as BOHB does.
Source: Falkner et al., BOHB: Robust and Efficient Hyperparameter Optimization at Scale (2018),
section 3.2: the largest budget with at least d + 1 results.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from searchers.searcher import Observation

# Reasons of failures that are not the configuration's fault: nothing is learned from them.
NO_FAULT = frozenset({"infra", "preempt", "killed", "budget"})
END = math.inf  # stands for the step of a result without a step


@dataclass(frozen=True)
class Scored:
    """A trial's loss at the common step; None: it failed or diverged, worse than any loss.

    With several objectives `loss` is that of the first, and `losses` are those at the last step of
    the trial, since a curve holds the first objective alone.
    """

    observation: Observation
    loss: float | None

    @property
    def losses(self) -> tuple[float, ...]:
        """The loss of each objective; empty: the trial failed, or there is one objective."""
        return () if self.loss is None else self.observation.losses


def comparable(history: Sequence[Observation], enough: int) -> list[Scored]:
    """Return the trials that can be compared as equals, in the order of the history.

    The common step is the highest step at which trials ended, or wait, and that at least `enough`
    trials have reached; where no step has so many, the lowest. A trial that went further counts
    with its loss at that step, running trials included. A trial that ended earlier is left out: it
    was stopped by a comparison with its rivals at another step. Failed trials count as the worst at
    every step, unless the failure was not their fault. Results without a step form a group of their
    own, which is used where it is the larger one.
    """
    last_steps = [None if _is_at_fault(seen) else _last_step(seen) for seen in history]
    common_step = _common_step(history, last_steps, enough)
    scored = []
    for seen, step in zip(history, last_steps, strict=True):
        if _is_at_fault(seen):
            scored.append(Scored(seen, None))
        elif common_step is not None and step is not None and step >= common_step:
            loss = _loss_at(seen, common_step)
            if loss is not None:
                scored.append(Scored(seen, loss))
    return scored


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


def _loss_at(seen: Observation, step: float) -> float | None:
    """Return the last loss that a trial had reported when it reached the level; None: none."""
    if step == END:
        return None if seen.curve else primary_loss(seen)
    index = bisect_right(seen.curve, step, key=lambda point: point[0])
    if index == 0 or not math.isfinite(seen.curve[index - 1][1]):
        return None
    return seen.curve[index - 1][1]
