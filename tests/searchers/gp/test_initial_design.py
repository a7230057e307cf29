"""The design without a model: the centre first, spread out after it, new to the end of a space."""

import numpy as np

from searchers.gp.initial_design import design_point
from searchers.novelty import SeenConfigs
from searchers.space import Float, Space

SQUARE = Space({"x": Float(0.0, 1.0), "y": Float(1e-4, 1.0, log=True)})


def design(space, count, seed=0):
    taken, points = SeenConfigs(space, []), []
    for place in range(count):
        params = design_point(space, taken, place, seed, np.random.default_rng(99))
        if params is None:
            break
        taken.add(params)
        points.append(params)
    return points


def test_the_design_begins_at_the_centre():
    assert design(SQUARE, 1) == [{"x": 0.5, "y": 0.01}]


def test_sixteen_points_have_a_sixteenth_of_each_range_each():
    points = design(SQUARE, 17)[1:]
    x_N = np.array([SQUARE.encode(params) for params in points])
    for column in range(2):
        assert sorted(np.floor(16.0 * x_N[:, column]).tolist()) == list(range(16))


def test_the_first_points_do_not_lie_on_one_diagonal():
    """Otherwise every parameter has the same values, and the model can tell none apart."""
    space = Space({f"x{p}": Float(0.0, 1.0) for p in range(6)})
    for seed in range(5):
        x_N = np.array([space.encode(params) for params in design(space, 8, seed)])
        correlation_PP = np.corrcoef(x_N.T)
        assert np.abs(correlation_PP[np.triu_indices(6, 1)]).mean() < 0.5


def test_all_points_satisfy_constraints_that_few_points_do():
    space = Space(dict(SQUARE), ["x <= 0.02", "y >= 0.5"])
    points = design(space, 5)
    assert len(points) == 5
    assert all(space.allows(params) for params in points)
