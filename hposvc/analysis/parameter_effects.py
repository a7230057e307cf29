"""Explain what a sweep's results say about its parameters, and how sure that is.

The models of `searchers.explain` are fitted to the trials. A share is the mean over functions drawn
from the models, and its interval holds most of them. Whether anything was learnt is
measured apart, as models may be wrong: they are fitted again to random halves of the trials, and
must rank the trials of the other halves better than chance.

Trials at different steps are never compared as equals: a stopped trial gives the models its curve,
they predict its result at the highest step, and ranks are taken among trials of one step.

Axes: N trials, L distinct values.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hposvc.estimate import Estimate
from hposvc.spec import SweepSpec
from searchers import Observation, Space

if TYPE_CHECKING:  # the models take half a second, and few commands explain anything
    from searchers import Explanation
    from searchers.explain.dependence import Dependence

Array = NDArray[np.float64]

MIN_TRIALS = 8  # with a result; halves of fewer say nothing
HALVES = 8
PAIRS = 3
SLICES = 12  # parameters with a slice: the most important
SLICE_POINTS, CONTOUR_POINTS = 24, 13
# A rank correlation below either is no sign that anything was learnt: chance gives more than two
# deviations, 2 / sqrt(N), in one of forty sweeps.
LEAST_SKILL, DEVIATIONS = 0.1, 2.0


@dataclass(frozen=True)
class ParameterShare:
    """A parameter's share of the variance of the predicted metric over the space."""

    name: str
    main: float  # from the parameter alone
    total: Estimate  # alone or together with others


@dataclass(frozen=True)
class Pair:
    """The predicted metric over two parameters, averaged over the others."""

    share: float  # of the variance, from the two alone and together
    interaction: float  # the part that they have only together
    dependence: "Dependence"


@dataclass(frozen=True)
class Explained:
    """The explanation of one metric."""

    metric: str
    goal: str
    trials: int  # given to the models
    of: int  # trials with a result
    step: int  # at which results are predicted; 0: trials have no steps
    stopped: int  # trials with a result that did not come to this step
    skill: float | None  # rank correlation on unseen trials; None: it cannot be measured
    learnt: bool  # whether the skill is more than chance
    importance: tuple[ParameterShare, ...]  # the most important first
    slices: "tuple[Dependence, ...]"  # in the same order
    pairs: tuple[Pair, ...]  # those with the highest share first
    predicted: Mapping[str, float]  # the metric of each trial that came to this step


def explained(spec: SweepSpec, trials: Sequence[Observation]) -> list[Explained]:
    """Return an explanation for each metric; none with too few results or nothing searched.

    The last answers are kept: the same trials are explained once.

    Args:
        trials: of the sweep, with losses that are lower-is-better. The results of trials that
            repeat another one are that one's.
    """
    space = spec.space
    if not space.searched or len(trials) < MIN_TRIALS:
        return []
    from searchers.gp.training_data import folded

    result = [replace(seen, note={}) for seen in folded(trials) if has_result(seen)]
    if len(result) < MIN_TRIALS:
        return []
    goals = tuple((metric.name, metric.goal) for metric in spec.objectives)
    rows = [
        (seen.id, seen.params, seen.curve, seen.losses, seen.state, seen.repeats) for seen in result
    ]
    text = repr((space, goals, rows))
    key = hashlib.sha256(text.encode()).hexdigest()
    return [*_explained(_Question(key, space, goals, tuple(result)))]


def has_result(seen: Observation) -> bool:
    """Return whether a trial has a result for the models: failed ones have none."""
    losses = seen.losses or (seen.loss,)
    finite = all(loss is not None and math.isfinite(loss) for loss in losses)
    return finite and seen.state != "failed"


def last_step(seen: Observation) -> int:
    """Return the last step that a trial reported; 0: its trials have no steps."""
    return seen.curve[-1][0] if seen.curve else 0


def best_and_random(order: Sequence[int], most: int) -> list[int]:
    """Return at most `most` of the indices: the first half of them, the rest at random.

    Args:
        order: indices, the best first.
    """
    if len(order) <= most:
        return sorted(order)
    first = most // 2
    drawn = np.random.default_rng(0).choice(order[first:], most - first, replace=False)
    return sorted([*order[:first], *map(int, drawn)])


@dataclass(frozen=True)
class _Question:
    key: str  # of everything below
    space: Space = field(compare=False)
    goals: tuple[tuple[str, str], ...] = field(compare=False)
    trials: tuple[Observation, ...] = field(compare=False)


@lru_cache(maxsize=8)
def _explained(question: _Question) -> tuple[Explained, ...]:
    halves = max(5, HALVES // len(question.goals))
    answers = (_of_metric(question, place, halves) for place in range(len(question.goals)))
    return tuple(answer for answer in answers if answer is not None)


def _of_metric(question: _Question, place: int, halves: int) -> Explained | None:
    """Return the explanation of a metric; None: its models cannot be fitted."""
    from searchers import Explanation
    from searchers.explain.belief import ROWS

    space, everyone = question.space, [_of(seen, place) for seen in question.trials]
    order = sorted(
        range(len(everyone)), key=lambda i: (-last_step(everyone[i]), _loss(everyone[i]))
    )
    trials = [everyone[index] for index in best_and_random(order, ROWS)]
    name, goal = question.goals[place]
    try:
        whole = Explanation.of(space, trials, goal)
    except ValueError:  # too few results that count, such as when all others are pending
        return None
    skill = _skill(space, trials, goal, halves)
    top = max(map(last_step, everyone))
    importance = _importance(whole)
    chance = max(LEAST_SKILL, DEVIATIONS / math.sqrt(len(trials)))
    at_top = [seen for seen in trials if last_step(seen) == top]
    return Explained(
        metric=name,
        goal=goal,
        trials=len(trials),
        of=len(everyone),
        step=top,
        stopped=sum(last_step(seen) < top for seen in everyone),
        skill=skill,
        learnt=skill is not None and skill > chance,
        importance=importance,
        slices=tuple(
            whole.dependence(share.name, resolution=SLICE_POINTS) for share in importance[:SLICES]
        ),
        pairs=_pairs(whole, importance),
        predicted={seen.id: whole.predict(seen.params).mean for seen in at_top},
    )


def _of(seen: Observation, place: int) -> Observation:
    """Return a trial with the loss of one of several metrics alone."""
    if not seen.losses:
        return seen
    loss = seen.losses[place]
    return replace(
        seen, loss=loss, losses=(), curves=(), curve=seen.curve and ((last_step(seen), loss),)
    )


def _loss(seen: Observation) -> float:
    return math.inf if seen.loss is None else seen.loss


def _skill(space: Space, trials: Sequence[Observation], goal: str, halves: int) -> float | None:
    """Return how well models of random halves of the trials rank the trials of the other half."""
    from searchers import Explanation

    rng = np.random.default_rng(0)
    skills = []
    for _ in range(halves):
        taken = set(rng.permutation(len(trials))[: (len(trials) + 1) // 2].tolist())
        half = [seen for index, seen in enumerate(trials) if index in taken]
        rest = [seen for index, seen in enumerate(trials) if index not in taken]
        try:
            model = Explanation.of(space, half, goal)
        except ValueError:  # such as when the half has too few results that count
            continue
        predicted = [model.sign * model.predict(seen.params).mean for seen in rest]
        skill = _rank_correlation(
            predicted, [_loss(seen) for seen in rest], [last_step(seen) for seen in rest]
        )
        if skill is not None:
            skills.append(skill)
    return float(np.mean(skills)) if skills else None


def _rank_correlation(
    predicted: Sequence[float], seen: Sequence[float], groups: Sequence[int]
) -> float | None:
    """Return the rank correlation within groups, pooled over them.

    None: no group has two members that differ, or all are predicted to be equal.
    """
    place = sorted(range(len(groups)), key=groups.__getitem__)
    one, other = [], []
    for _, members in groupby(place, key=groups.__getitem__):
        index = [*members]
        one.append(_centred_ranks([predicted[i] for i in index]))
        other.append(_centred_ranks([seen[i] for i in index]))
    if not one:
        return None
    one_N, other_N = np.concatenate(one), np.concatenate(other)
    scale = math.sqrt(float(one_N @ one_N) * float(other_N @ other_N))
    if not float(other_N @ other_N):
        return None
    return float(one_N @ other_N) / scale if scale else 0.0


def _centred_ranks(values: Sequence[float]) -> Array:
    """Return ranks in [-1/2, 1/2], equal values sharing their mean rank."""
    _, level_N, count_L = np.unique(values, return_inverse=True, return_counts=True)
    middle_L = np.cumsum(count_L) - (count_L + 1) / 2
    rank_N: Array = (middle_L[level_N] - (len(values) - 1) / 2) / max(1, len(values) - 1)
    return rank_N


def _importance(whole: "Explanation") -> tuple[ParameterShare, ...]:
    shares = []
    for name, (main_S, total_S) in whole.importance_draws().items():
        total = Estimate.of_draws(total_S)
        # The estimate of a small share alone is the rougher one: by itself it may exceed both.
        shares.append(ParameterShare(name, min(float(main_S.mean()), total.value), total))
    return tuple(sorted(shares, key=lambda share: -share.total.value))


def _pairs(whole: "Explanation", importance: Sequence[ParameterShare]) -> tuple[Pair, ...]:
    """Return the pairs of parameters that explain the most."""
    main = {share.name: share.main for share in importance}
    place = {share.name: index for index, share in enumerate(importance)}
    together = whole.interactions()
    shares = {
        pair: min(1.0, sum(main[name] for name in pair) + together[pair]) for pair in together
    }
    pairs: list[Pair] = []
    for pair in sorted(shares, key=lambda pair: (-shares[pair], sum(place[name] for name in pair))):
        if len(pairs) == PAIRS:
            break
        names = sorted(pair, key=place.__getitem__)
        try:
            over = whole.dependence(*names, resolution=CONTOUR_POINTS)
        except ValueError:  # never active together
            continue
        pairs.append(Pair(shares[pair], together[pair], over))
    return tuple(pairs)
