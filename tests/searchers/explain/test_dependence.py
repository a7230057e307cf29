"""Partial dependence of a known function, where its parameters are active."""

import math

import numpy as np
import pytest
from scipy.stats import qmc

from searchers.explain.explanation import Explanation
from searchers.searcher import Observation
from searchers.space import Choice, Float, Space

BRANCHES = Space(
    {
        "kind": Choice(("plain", "deep", "wide", "both")),
        "depth": Float(0.0, 1.0, when={"kind": ("deep", "both")}),
        "lr": Float(1e-4, 1.0, log=True),
    }
)


def history_of(space, function, count):
    """Return results on a quasi-random design."""
    unit_NP = qmc.Sobol(len(space.searched), rng=1).random(count)
    return [
        Observation(str(i), params, loss=function(params), state="done")
        for i, params in enumerate(space.decode(unit_P) for unit_P in unit_NP)
    ]


@pytest.fixture(scope="module")
def explanation():
    """Explain a loss of 3 depth (0.5 where there is none) and the decades of lr."""
    return Explanation.of(
        BRANCHES,
        history_of(BRANCHES, lambda p: 3.0 * p.get("depth", 0.5) + math.log10(p["lr"]), 128),
    )


def test_dependence_on_a_conditional_parameter_is_averaged_where_it_is_active(explanation):
    curve = explanation.dependence("depth", resolution=5)
    # lr is -2 on average; in the other half of the space depth would count as 0.5.
    np.testing.assert_allclose(curve.mean, 3.0 * np.linspace(0.0, 1.0, 5) - 2.0, atol=0.2)


def test_dependence_on_a_parameter_that_is_hardly_ever_active_is_found():
    """The configurations that have it are made, not waited for."""
    space = Space(
        {
            "kind": Choice(tuple(range(300))),
            "option": Choice(("a", "b"), when={"kind": (7,)}),
            "x": Float(0.0, 1.0, when={"option": ("b",)}),
        }
    )
    rng = np.random.default_rng(0)
    history = [
        Observation(str(i), params, loss=params.get("x", 0.5), state="done")
        for i, params in enumerate(space.complete({"x": float(x)}, rng) for x in rng.random(24))
    ]
    curve = Explanation.of(space, history).dependence("x", resolution=3)
    np.testing.assert_allclose(curve.mean, [0.0, 0.5, 1.0], atol=0.1)


def test_dependence_on_two_parameters_is_nan_where_they_are_not_active_together(explanation):
    surface = explanation.dependence("kind", "depth", resolution=3)
    assert surface.grids == (("plain", "deep", "wide", "both"), (0.0, 0.5, 1.0))
    assert surface.mean.shape == surface.deviation.shape == (4, 3)
    assert np.isnan(surface.mean[[0, 2]]).all()
    np.testing.assert_allclose(surface.mean[[1, 3]], [[-2.0, -0.5, 1.0]] * 2, atol=0.25)
    assert surface.to_dict()["mean"][0] == [None, None, None]
    mirrored = explanation.dependence("depth", "kind", resolution=3)
    np.testing.assert_allclose(mirrored.mean.T, surface.mean, atol=1e-9)


def test_parameters_that_exclude_each_other_have_no_common_dependence():
    space = Space(
        {
            "kind": Choice(("p", "q")),
            "x": Float(0.0, 1.0, when={"kind": ("p",)}),
            "y": Float(0.0, 1.0, when={"kind": ("q",)}),
        }
    )
    history = history_of(space, lambda params: params.get("x", 2.0), 16)
    with pytest.raises(ValueError, match="x and y are never active together"):
        Explanation.of(space, history).dependence("x", "y")
