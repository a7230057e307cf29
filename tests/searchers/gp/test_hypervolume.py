"""Boxes against volumes, the expected improvement against sampling, gradients, far tails."""

import numpy as np
import pytest
from gradients import check_gradient
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from searchers.gp.acquisition import LogExpectedImprovement
from searchers.gp.hypervolume import LogExpectedHypervolumeImprovement, undominated
from searchers.gp.model import Hyperparameters, Posterior, Rows
from searchers.pareto import fronts, hypervolume

LEVELS = st.integers(0, 6).map(lambda level: level / 4.0)  # with ties, some beyond the reference


def posteriors(objectives):
    rng = np.random.default_rng(objectives)
    x_ND = rng.random((12, 3))
    hyperparameters = Hyperparameters((0.3, 0.6, 1.0), noise=0.3, scale=1.0)
    return [
        Posterior.of(Rows(x_ND, rng.standard_normal(12), np.arange(3), 0.3), hyperparameters)
        for _ in range(objectives)
    ]


def improvement(objectives, reference=0.5):
    models = posteriors(objectives)
    front_FK = np.stack([posterior.fitted_N for posterior in models], axis=1)
    return LogExpectedHypervolumeImprovement.of(models, front_FK, np.full(objectives, reference))


@st.composite
def points(draw):
    return draw(
        arrays(np.float64, (draw(st.integers(0, 7)), draw(st.integers(1, 4))), elements=LEVELS)
    )


@settings(deadline=None)
@given(points())
def test_boxes_are_disjoint_and_cover_what_is_not_dominated(front_FK):
    """Otherwise improvements would be counted twice, or not at all."""
    reference_K = np.ones(front_FK.shape[1])
    lower_BK, upper_BK = undominated(front_FK, reference_K)
    cell_MK = np.random.default_rng(0).random((300, front_FK.shape[1]))
    inside_MB = ((lower_BK <= cell_MK[:, None]) & (cell_MK[:, None] < upper_BK)).all(axis=2)
    dominated_M = (front_FK <= cell_MK[:, None]).all(axis=2).any(axis=1)
    np.testing.assert_array_equal(inside_MB.sum(axis=1), np.where(dominated_M, 0, 1))


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_the_value_is_the_mean_gain_in_hypervolume(objectives):
    models, reference_K = posteriors(objectives), np.full(objectives, 0.5)
    mean_FK = np.stack([posterior.fitted_N for posterior in models], axis=1)
    front_FK = mean_FK[fronts(mean_FK) == 0]
    before = hypervolume(front_FK, reference_K)
    rng = np.random.default_rng(3)
    query_MD = rng.random((2, 3))
    expected_M = np.exp(improvement(objectives)(query_MD))
    assert (expected_M > 1e-3).all()  # rarer gains are too few among the draws
    predicted_MK = np.stack([model.predict(query_MD) for model in models], axis=2)
    for (mean_K, variance_K), expected in zip(
        np.swapaxes(predicted_MK, 0, 1), expected_M, strict=True
    ):
        draws = mean_K + np.sqrt(variance_K) * rng.standard_normal((1000, objectives))
        gains = [hypervolume(np.vstack([front_FK, draw]), reference_K) - before for draw in draws]
        assert abs(np.mean(gains) - expected) < 4.0 * np.std(gains) / np.sqrt(len(gains))


def test_with_one_objective_it_is_the_expected_improvement():
    (model,) = posteriors(1)
    query_MD = np.random.default_rng(2).random((20, 3))
    single = LogExpectedImprovement(model, model.fitted_N.min())
    several = LogExpectedHypervolumeImprovement.of([model], model.fitted_N[:, None], np.ones(1) * 9)
    np.testing.assert_allclose(several(query_MD), single(query_MD), rtol=1e-9)
    _, gradient_MD = several.with_gradient(query_MD)
    np.testing.assert_allclose(gradient_MD, single.with_gradient(query_MD)[1], rtol=1e-7)


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_the_gradient_equals_central_differences(objectives):
    query_MD = np.random.default_rng(3).random((15, 3))
    check_gradient(improvement(objectives), query_MD, atol=1e-4)


@pytest.mark.parametrize("reference", [-1e2, -1e4, 1e6])
def test_the_tails_stay_finite_and_point_somewhere(reference):
    """Otherwise the search has no direction once the models doubt that the front can be beaten."""
    acquisition = improvement(2, reference)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        value_M, gradient_MD = acquisition.with_gradient(np.full((1, 3), 0.4))
    assert np.isfinite(value_M).all()
    assert np.isfinite(gradient_MD).all()
    if reference < 0.0:
        assert np.abs(gradient_MD).max() > 1.0


def test_many_points_make_few_boxes():
    """Their number sets the cost of every candidate: growth as F^K would be unusable."""
    rng = np.random.default_rng(4)
    for objectives, most in ((2, 41), (3, 250), (4, 1200)):
        sphere_FK = np.abs(rng.standard_normal((40, objectives)))
        sphere_FK /= np.linalg.norm(sphere_FK, axis=1, keepdims=True)
        lower_BK, _ = undominated(1.0 - sphere_FK, np.full(objectives, 1.1))
        assert len(lower_BK) <= most
