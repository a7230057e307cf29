"""The user's beliefs: their densities, gradients, categories, branches, and how they fade."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchers.gp.encoding import Encoding, units
from searchers.gp.priors import Belief, LogPrior
from searchers.space import Choice, Constant, Float, Int, Space

SPACE = Space(
    {
        "lr": Float(1e-5, 1e-1, log=True),
        "layers": Int(1, 9),
        "kind": Choice(("a", "b", "c")),
        "momentum": Float(0.0, 1.0, when={"kind": ("b",)}),
        "mode": Choice(("p", "q"), when={"kind": ("b", "c")}),
        "seed": Constant(3),
    }
)


def params(lr=1e-3, layers=5, kind="a", momentum=0.5, mode="p"):
    given = {"lr": lr, "layers": layers, "kind": kind, "momentum": momentum, "mode": mode}
    given["seed"] = 3
    active = SPACE.active(given)
    return {name: value for name, value in given.items() if name in active}


def columns(*configurations):
    encoding = Encoding.of(SPACE)
    return encoding.columns_of(encoding.snap(units(SPACE, configurations)))


def test_a_belief_about_a_number_is_a_normal_on_its_own_scale():
    prior = LogPrior.of(SPACE, {"lr": Belief(1e-3, width=0.25)}, trials=10)
    at, one_off, two_off = prior(columns(params(1e-3), params(1e-4), params(1e-5)))
    assert at - one_off == pytest.approx(0.5)
    assert at - two_off == pytest.approx(2.0)


def test_other_categories_are_less_likely_all_alike():
    prior = LogPrior.of(SPACE, {"kind": Belief("b", width=0.5)}, trials=10)
    a, b, c = prior(columns(params(kind="a"), params(kind="b"), params(kind="c")))
    assert a == pytest.approx(c)
    assert b - a == pytest.approx(2.0)


@given(centre=st.floats(0.0, 1.0), width=st.floats(0.05, 5.0))
def test_a_density_is_one_on_average_over_the_range(centre, width):
    prior = LogPrior.of(SPACE, {"momentum": Belief(centre, width)}, trials=10)
    middles = (np.arange(400) + 0.5) / 400
    at = columns(*(params(kind="b", momentum=middle) for middle in middles))
    assert np.exp(prior(at)).mean() == pytest.approx(1.0, abs=2e-3)


def test_a_belief_says_nothing_of_branches_without_the_parameter():
    """Otherwise a belief about a conditional parameter would change which branch is tried."""
    priors = {"momentum": Belief(0.9, width=0.1), "mode": Belief("q", width=0.3)}
    prior = LogPrior.of(SPACE, priors, trials=1)
    value_M, gradient_MD = prior.with_gradient(columns(params(kind="a"), params(kind="b")))
    assert value_M[0] == 0.0
    assert not gradient_MD[0].any()
    assert value_M[1] < -1.0


def test_beliefs_fade_with_the_trials():
    priors = {"lr": Belief(1e-3), "kind": Belief("b")}
    x_MD = columns(params(1e-5), params(1e-1, kind="c"))
    early_M = LogPrior.of(SPACE, priors, trials=5)(x_MD)
    np.testing.assert_allclose(LogPrior.of(SPACE, priors, trials=50)(x_MD), early_M / 10.0)
    assert np.isfinite(LogPrior.of(SPACE, priors, trials=0)(x_MD)).all()


def test_the_gradient_equals_central_differences():
    priors = {"lr": Belief(1e-2, 0.3), "layers": Belief(8, 0.2), "momentum": Belief(0.9, 0.4)}
    prior, h = LogPrior.of(SPACE, priors, trials=7), 1e-6
    x_MD = columns(params(2e-4, 3), params(3e-2, 7, "b", 0.3), params(1e-3, 1, "c"))
    _, gradient_MD = prior.with_gradient(x_MD)
    for column in range(x_MD.shape[1]):
        step_D = h * np.eye(x_MD.shape[1])[column] * (column < 2 or column == 5)
        differences_M = (prior(x_MD + step_D) - prior(x_MD - step_D)) / (2 * h)
        np.testing.assert_allclose(gradient_MD[:, column], differences_M, rtol=1e-5, atol=1e-8)
