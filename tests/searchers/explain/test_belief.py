"""The mixture of models that explanations are made of."""

import numpy as np
import pytest

from searchers.explain.belief import Belief
from searchers.gp.encoding import units
from searchers.searcher import Observation
from searchers.space import Space

SPACE = Space.from_dict({"x": {"min": 0.0, "max": 1.0}, "y": {"min": 0.0, "max": 1.0}})


def history(count=14, scale=1.0):
    rng = np.random.default_rng(3)
    params = [SPACE.sample(rng) for _ in range(count)]
    return [
        Observation(f"t{k}", point, loss=scale * (point["x"] - 0.3) ** 2, state="done")
        for k, point in enumerate(params)
    ]


def test_predictions_follow_the_losses_and_are_surest_where_trials_were():
    seen = history()
    belief = Belief.of(SPACE, seen)
    points = belief.encoding.snap(units(SPACE, [one.params for one in seen]))
    mean_M, deviation_M = belief.predict(points)
    loss_M = np.array([one.loss for one in seen])
    assert np.corrcoef(mean_M, loss_M)[0, 1] > 0.95
    assert (deviation_M >= 0).all()
    np.testing.assert_allclose(belief.mean(points), mean_M, rtol=1e-6)


def test_a_belief_is_in_the_unit_of_the_loss():
    plain, scaled = Belief.of(SPACE, history()), Belief.of(SPACE, history(scale=1000.0))
    points = plain.encoding.snap(units(SPACE, [{"x": 0.1, "y": 0.5}, {"x": 0.9, "y": 0.5}]))
    np.testing.assert_allclose(scaled.mean(points), 1000 * plain.mean(points), rtol=1e-3)
    assert scaled.span == pytest.approx(1000 * plain.span)


def test_too_little_is_refused():
    with pytest.raises(ValueError, match="1 of 1 trials have a result"):
        Belief.of(SPACE, history(1))
    with pytest.raises(ValueError, match="constants alone"):
        Belief.of(Space.from_dict({"x": 1}), history())
