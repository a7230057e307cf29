"""Columns of a space with every kind of parameter, and snapping that agrees with the Space."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers.gp.encoding import Encoding, units
from searchers.space import Choice, Constant, Float, Int, Space

SPACE = Space(
    {
        "lr": Float(1e-5, 1e-1, log=True),
        "depth": Int(1, 5),
        "batch": Int(16, 512, log=True, step=16),
        "dropout": Float(0.0, 0.5, step=0.1),
        "size": Choice(("s", "m", "l"), ordered=True),
        "opt": Choice(("sgd", "adam", "lars")),
        "momentum": Float(0.5, 0.99, when={"opt": ("sgd", "lars")}),
        "nesterov": Choice((True, False), when={"opt": ("sgd",), "depth": (1, 2, 3)}),
        "trust": Constant(1, when={"opt": ("lars",)}),
        "trust_decay": Float(0.0, 1.0, when={"trust": (1,)}),
    }
)
ENCODING = Encoding.of(SPACE)
COLUMN = {name: index for index, name in enumerate(SPACE.searched)}


def test_numbers_have_one_column_and_categories_one_per_value():
    widths = dict(zip(SPACE.searched, np.bincount(ENCODING.parameter_D).tolist(), strict=True))
    assert widths.pop("opt") == 3
    assert widths.pop("nesterov") == 2
    assert set(widths.values()) == {1}
    smooth = {SPACE.searched[index] for index in ENCODING.smooth_C}
    assert smooth == {"lr", "batch", "momentum", "trust_decay"}


def test_snapped_points_are_what_the_space_decodes_and_encodes():
    unit_NP = np.random.default_rng(0).random((300, ENCODING.parameters))
    points = ENCODING.snap(unit_NP)
    decoded = [SPACE.decode(unit_P) for unit_P in points.unit_NP]
    np.testing.assert_allclose(points.unit_NP, units(SPACE, decoded), atol=1e-9)
    for params, active_P in zip(decoded, points.active_NP, strict=True):
        active = {name for name in SPACE.searched if active_P[COLUMN[name]]}
        assert active == params.keys() - {"trust"}


def test_snapping_twice_changes_nothing():
    once = ENCODING.snap(np.random.default_rng(1).random((100, ENCODING.parameters)))
    twice = ENCODING.snap(once.unit_NP)
    np.testing.assert_array_equal(once.unit_NP, twice.unit_NP)
    np.testing.assert_array_equal(once.active_NP, twice.active_NP)


def test_two_categories_are_one_apart_and_an_inactive_one_is_at_zero():
    rng = np.random.default_rng(2)
    configurations = [
        SPACE.complete({"opt": "sgd", "depth": 1, "nesterov": True}, rng),
        SPACE.complete({"opt": "sgd", "depth": 1, "nesterov": False}, rng),
        SPACE.complete({"opt": "adam"}, rng),
    ]
    column_ND = ENCODING.columns_of(ENCODING.snap(units(SPACE, configurations)))
    nesterov_ND = column_ND[:, ENCODING.parameter_D == COLUMN["nesterov"]]
    assert np.linalg.norm(nesterov_ND[0] - nesterov_ND[1]) == pytest.approx(1.0)
    np.testing.assert_array_equal(nesterov_ND[2], 0.0)


def test_a_step_moves_a_grid_and_keeps_or_redraws_a_category():
    rng = np.random.default_rng(3)
    here_NP = ENCODING.snap(rng.random((200, ENCODING.parameters))).unit_NP
    there_NP = ENCODING.stepped(here_NP, here_NP, rng)
    depth_N, moved_N = here_NP[:, COLUMN["depth"]], there_NP[:, COLUMN["depth"]]
    at_the_end_N = (depth_N < 0.11) | (depth_N > 0.89)
    assert (depth_N != moved_N)[~at_the_end_N].all()
    assert (np.abs(depth_N - moved_N) < 0.2 + 1e-9).all()
    np.testing.assert_array_equal(here_NP[:, COLUMN["lr"]], there_NP[:, COLUMN["lr"]])
    changed = np.mean(here_NP[:, COLUMN["opt"]] != there_NP[:, COLUMN["opt"]])
    assert 0.2 < changed < 0.5


@settings(max_examples=50, deadline=None)
@given(low=st.integers(1, 50), count=st.integers(2, 60), step=st.integers(1, 9), log=st.booleans())
def test_every_grid_snaps_to_all_of_its_values_and_no_other(low, count, step, log):
    space = Space({"n": Int(low, low + (count - 1) * step, log=log, step=step)})
    dense_N1 = np.linspace(0.0, 1.0, 20_001)[:, None]
    unit_N1 = Encoding.of(space).snap(dense_N1).unit_NP
    values = {space.decode(unit_1)["n"] for unit_1 in np.unique(unit_N1)[:, None]}
    assert values == set(range(low, low + count * step, step))


def test_a_grid_too_fine_to_list_is_searched_as_continuous():
    space = Space({"n": Int(1, 10**9, log=True)})
    encoding = Encoding.of(space)
    assert encoding.smooth_C.tolist() == [0]
    np.testing.assert_array_equal(encoding.snap(np.array([[0.123]])).unit_NP, [[0.123]])
