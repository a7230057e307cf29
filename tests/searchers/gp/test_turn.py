"""A turn of a model: failures as outputs, fits kept or renewed, pending trials, rare categories."""

import numpy as np
import pytest

from searchers.gp.evidence import Evidence
from searchers.gp.fits import MODELS
from searchers.gp.turn import Turn
from searchers.space import Choice, Float, Space

SPACE = Space(
    {
        "x": Float(0.0, 1.0),
        "kind": Choice(("a", "b")),
        "mode": Choice(("p", "q", "r"), when={"kind": ("b",)}),
    }
)


def params(x, kind="a", mode="p"):
    return {"x": x, "kind": kind} | ({"mode": mode} if kind == "b" else {})


def turn_of(points, losses, pending=()):
    return Turn.of(SPACE, MODELS[0], Evidence(points, np.array(losses), list(pending)))


def test_failed_trials_are_as_bad_as_the_worst_that_succeeded():
    turn = turn_of([params(x) for x in (0.1, 0.2, 0.3, 0.4)], [0.0, 5.0, np.nan, 1.0])
    assert turn.output_N[2] == turn.output_N[1] == turn.output_N.max()


def test_failed_trials_are_worse_than_equal_successes():
    turn = turn_of([params(x) for x in (0.1, 0.2, 0.3)], [2.0, 2.0, np.nan])
    assert turn.output_N.tolist() == [0.0, 0.0, 1.0]


def test_a_fit_is_kept_until_one_is_due():
    rng = np.random.default_rng(0)
    turn = turn_of([params(x) for x in rng.random(12)], rng.normal(size=12))
    first = turn.fitted(None, 12, rng)
    assert turn.fitted(first, 12, rng) is first
    renewed = turn.fitted(first, 13, rng)
    assert (renewed.trials, first.trials) == (13, 12)


def test_the_model_expects_less_to_learn_near_a_pending_trial():
    points, losses = [params(x) for x in (0.0, 0.1, 0.8, 0.9)], [1.0, 0.8, 0.1, 0.9]
    rng = np.random.default_rng(1)
    alone, joined = turn_of(points, losses), turn_of(points, losses, [params(0.45)])
    fitted = alone.fitted(None, 4, rng)
    mean, deviation = alone.predicted(alone.posterior(fitted), params(0.45))
    same_mean, less = joined.predicted(joined.posterior(fitted), params(0.45))
    assert same_mean == pytest.approx(mean)
    assert less < 0.7 * deviation


def test_predictions_are_in_the_units_of_the_loss():
    x_N = np.linspace(0.0, 1.0, 15)
    losses = 1e4 + 300.0 * (x_N - 0.4) ** 2
    for model in MODELS:
        turn = Turn.of(SPACE, model, Evidence([params(x) for x in x_N], losses, []))
        posterior = turn.posterior(turn.fitted(None, 15, np.random.default_rng(2)))
        mean, deviation = turn.predicted(posterior, params(0.66))
        assert mean == pytest.approx(1e4 + 300.0 * 0.26**2, abs=4.0)
        assert 0.0 < deviation < 30.0


def test_the_least_visited_category_is_counted_against_its_equals():
    points = [params(0.1), params(0.2), params(0.3), params(0.4, "b", "p"), params(0.5, "b", "q")]
    focus = turn_of(points, range(5)).least_visited()
    assert SPACE.searched[focus.parameter] == "mode"
    assert focus.unit == SPACE["mode"].to_unit("r")
    both = [*points, params(0.6, "b", "r"), params(0.7, "b", "r")]
    focus = turn_of(both, range(7)).least_visited()
    assert (SPACE.searched[focus.parameter], focus.unit) == ("mode", SPACE["mode"].to_unit("p"))


def test_a_category_that_was_never_active_is_not_the_least_visited():
    focus = turn_of([params(0.1), params(0.2), params(0.3)], [1.0, 2.0, 3.0]).least_visited()
    assert SPACE.searched[focus.parameter] == "kind"


def test_a_space_without_categories_has_no_least_visited_one():
    numbers = Space({"x": Float(0.0, 1.0)})
    evidence = Evidence([{"x": 0.1}, {"x": 0.3}], np.array([1.0, 2.0]), [])
    assert Turn.of(numbers, MODELS[0], evidence).least_visited() is None
