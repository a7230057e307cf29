"""Earlier sweeps: those that rank this sweep's results count, those that mislead do not."""

from dataclasses import replace

import numpy as np
import pytest
from gradients import check_gradient

from searchers.gp.learned.process import SumOfMeans, coefficients
from searchers.gp.searcher import GaussianProcess
from searchers.gp.transfer import EarlierSweeps, agreement
from searchers.searcher import TRIED, Observation, call_rng
from searchers.space import Float, Space

SPACE = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})


def loss(params):
    return (params["x"] - 0.3) ** 2 + 0.3 * (params["y"] - 0.7) ** 2


def sweep(name, sign=1.0, offset=0.0, trials=15, seed=0):
    rng = np.random.default_rng(seed)
    points = [SPACE.sample(rng) for _ in range(trials)]
    return [
        Observation(f"{name}/{i}", point, loss=sign * loss(point) + offset, state="done")
        for i, point in enumerate(points)
    ]


def columns(trials):
    return np.array([[seen.params["x"], seen.params["y"]] for seen in trials])


def fitted(*earlier):
    return EarlierSweeps.of(SPACE, [seen for trials in earlier for seen in trials], 240, None)


HERE = sweep("here", trials=12, seed=5)
LOSS_T = np.array([seen.loss for seen in HERE])


def test_predictions_rank_as_the_sweep_did():
    found = fitted(sweep("before", offset=100.0))
    assert agreement(found(columns(HERE)), LOSS_T) > 0.99


def test_a_sweep_that_misleads_gets_no_weight_beside_one_that_helps():
    judged = fitted(sweep("wrong", sign=-1.0), sweep("right", seed=1)).judged(columns(HERE), LOSS_T)
    np.testing.assert_allclose(judged.weight_S, [0.0, 1.0])
    assert judged.trust > 0.99
    alone = fitted(sweep("wrong", sign=-1.0)).judged(columns(HERE), LOSS_T)
    assert alone.trust == 0.0


def test_the_gradient_is_that_of_the_function():
    function = SumOfMeans((fitted(sweep("a"), sweep("b", seed=1)).scaled(2.0, 0.5),))
    check_gradient(function, np.random.default_rng(0).random((6, 2)), rtol=1e-7)


@pytest.mark.parametrize(
    ("predicted", "least", "most"),
    [([1, 2, 3, 4, 5, 6], 0.98, 1.0), ([6, 5, 4, 3, 2, 1], 0.0, 0.0), ([1] * 6, 0.0, 0.0)],
)
def test_agreement_is_how_sure_the_ranks_are(predicted, least, most):
    assert least <= agreement(np.array(predicted, dtype=float), np.arange(6.0)) <= most
    assert agreement(np.array([1.0]), np.array([1.0])) == 0.0


def test_each_coefficient_is_its_own_ridge_regression_where_functions_do_not_overlap():
    rng = np.random.default_rng(1)
    basis_NF = np.linalg.qr(rng.standard_normal((20, 2)))[0] * 3.0
    output_N = basis_NF @ [0.8, -0.4] + 0.1 * rng.standard_normal(20)
    both_F = coefficients(basis_NF, output_N, lambda values: values / 0.1, [0.7, 0.7])
    alone_F = (0.7 + basis_NF.T @ output_N / 0.1) / (1.0 + (basis_NF**2).sum(axis=0) / 0.1)
    np.testing.assert_allclose(both_F, np.maximum(alone_F, 0.0), atol=1e-9)
    assert both_F[1] == 0.0


def test_failures_of_earlier_sweeps_are_avoided():
    """Out of memory there is out of memory here."""
    failed = [
        replace(seen, loss=None, state="failed", reason="oom") if seen.params["x"] < 0.6 else seen
        for seen in sweep("before", trials=40)
    ]
    history = [seen for seen in sweep("here", trials=30, seed=3) if seen.params["x"] > 0.6]
    history = [replace(seen, id=f"t{i}") for i, seen in enumerate(history)]
    searcher = GaussianProcess().after(failed)
    (proposal,) = searcher.suggest(SPACE, history, 1, call_rng(0, len(history)))
    assert proposal.params["x"] > 0.5
    (alone,) = GaussianProcess().suggest(SPACE, history, 1, call_rng(0, len(history)))
    assert alone.params["x"] < 0.6


def test_failures_count_where_an_earlier_sweep_has_too_few_results_for_a_model():
    failed = [replace(seen, loss=None, state="failed", reason="oom") for seen in sweep("before")]
    history = [replace(seen, id=f"t{i}") for i, seen in enumerate(sweep("here", trials=9))]
    rng = call_rng(0, len(history))
    (proposal,) = GaussianProcess().after(failed).suggest(SPACE, history, 1, rng)
    assert "failure" in proposal.note["fits"]
    (alone,) = GaussianProcess().suggest(SPACE, history, 1, call_rng(0, len(history)))
    assert "failure" not in alone.note["fits"]


@pytest.mark.parametrize("is_tried", [False, True])
def test_what_is_predicted_to_be_best_comes_second_and_is_new_where_the_code_is_the_same(is_tried):
    earlier = [replace(seen, note={TRIED: True} if is_tried else {}) for seen in sweep("before")]
    first = Observation("t0", {"x": 0.5, "y": 0.5}, loss=loss({"x": 0.5, "y": 0.5}), state="done")
    searcher = GaussianProcess().after(earlier)
    (second,) = searcher.suggest(SPACE, [first], 1, call_rng(0, 1))
    tried = [seen.params for seen in earlier]
    assert (second.params in tried) == (not is_tried)
    assert loss(second.params) <= min(map(loss, tried)) + 1e-9
