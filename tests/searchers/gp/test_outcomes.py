"""Outcomes of trials, as the models of several objectives see them."""

import numpy as np

from searchers.gp.outcomes import Outcomes
from searchers.pareto import fronts
from searchers.searcher import Observation
from searchers.space import Choice, Float, Space

SPACE = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0), "kind": Choice(("a", "b"))})


def seen(place, params, **outcome):
    return Observation(str(place), params, state="done", **outcome)


def two_goals(params):
    """Return losses with minima on different sides; kind a is better in both."""
    penalty = 0.0 if params["kind"] == "a" else 0.3
    x, y = params["x"], params["y"]
    return x**2 + (y - 0.5) ** 2 + penalty, (x - 1.0) ** 2 + (y - 0.5) ** 2 + penalty


def sampled(count, seed=0):
    rng = np.random.default_rng(seed)
    return [SPACE.sample(rng) for _ in range(count)]


def test_many_results_keep_the_front_and_the_latest():
    """Otherwise a long sweep would slow down with the cube of its trials, or forget its best."""
    points = sampled(300)
    history = [seen(i, p, losses=two_goals(p)) for i, p in enumerate(points)]
    outcomes = Outcomes.of(SPACE, history, 0)
    bounded = outcomes.bounded(100)
    kept_losses = {tuple(losses) for losses in bounded.losses_NK.tolist()}
    front_NK = outcomes.losses_NK[fronts(outcomes.losses_NK) == 0]
    assert len(bounded.params) == len(bounded.losses_NK) == len(bounded.excess_NL) == 100
    assert {tuple(losses) for losses in front_NK.tolist()} <= kept_losses
    assert bounded.params[-1] == points[-1]
    assert outcomes.bounded(300).params == outcomes.params
