"""The search on functions with a known maximum, over every kind of parameter."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from searchers.gp.encoding import Encoding, units
from searchers.gp.maximise import FRUGAL, THOROUGH, FixedFeatures, Maximiser
from searchers.space import Choice, Float, Int, Space

SPACE = Space(
    {
        "x": Float(0.0, 1.0),
        "y": Float(0.0, 1.0),
        "n": Int(1, 100),
        "kind": Choice(("a", "b", "c", "d")),
        "z": Float(0.0, 1.0, when={"kind": ("c",)}),
    }
)
BEST = {"x": 0.321, "y": 0.9, "n": 73, "kind": "c", "z": 0.12}


@dataclass(frozen=True)
class Bowl:
    """Minus the squared distance to a target, in the model's columns."""

    target_D: np.ndarray

    def __call__(self, x_MD):
        return -((x_MD - self.target_D) ** 2).sum(axis=1)

    def with_gradient(self, x_MD):
        return self(x_MD), -2.0 * (x_MD - self.target_D)


def search(space, target, focus=None, effort=THOROUGH):
    """Return the candidates for a bowl around `target`, from two arbitrary incumbents."""
    encoding = Encoding.of(space)
    target_D = encoding.columns_of(encoding.snap(units(space, [target])))[0]
    rng = np.random.default_rng(0)
    incumbents = encoding.snap(rng.random((2, encoding.parameters))).unit_NP
    maximiser = Maximiser(space, encoding, Bowl(target_D), focus, effort)
    return maximiser.search(incumbents, rng)


@pytest.mark.parametrize("effort", [THOROUGH, FRUGAL])
def test_the_maximum_of_a_mixed_conditional_space_is_found(effort):
    candidates = search(SPACE, BEST, effort=effort)
    params = SPACE.decode(candidates.points.unit_NP[0])
    assert (params["n"], params["kind"]) == (73, "c")
    assert [params["x"], params["y"], params["z"]] == pytest.approx([0.321, 0.9, 0.12], abs=1e-4)
    assert candidates.value_N[0] == pytest.approx(0.0, abs=1e-7)


def test_candidates_come_best_first_and_are_as_good_as_they_are_scored():
    candidates = search(SPACE, BEST)
    assert (np.diff(candidates.value_N) <= 0.0).all()
    encoding = Encoding.of(SPACE)
    decoded = [SPACE.decode(unit_P) for unit_P in candidates.points.unit_NP]
    again_ND = encoding.columns_of(encoding.snap(units(SPACE, decoded)))
    target_D = encoding.columns_of(encoding.snap(units(SPACE, [BEST])))[0]
    np.testing.assert_allclose(Bowl(target_D)(again_ND), candidates.value_N, atol=1e-8)


def test_a_focus_is_never_left_and_its_own_maximum_is_found():
    kind = SPACE.searched.index("kind")
    candidates = search(SPACE, BEST, FixedFeatures(kind, SPACE["kind"].to_unit("b")))
    assert {SPACE.decode(unit_P)["kind"] for unit_P in candidates.points.unit_NP} == {"b"}
    params = SPACE.decode(candidates.points.unit_NP[0])
    assert params["n"] == 73
    assert [params["x"], params["y"]] == pytest.approx([0.321, 0.9], abs=1e-4)


def test_a_focus_on_a_conditional_category_keeps_it_active():
    space = Space(
        {
            "optimizer": Choice(("sgd", "adam")),
            "schedule": Choice(("cosine", "step"), when={"optimizer": ("sgd",)}),
            "lr": Float(0.0, 1.0),
        }
    )
    schedule = space.searched.index("schedule")
    focus = FixedFeatures(schedule, space["schedule"].to_unit("step"))
    candidates = search(space, {"optimizer": "adam", "lr": 0.4}, focus)
    assert len(candidates.points)
    assert {space.decode(unit_P)["schedule"] for unit_P in candidates.points.unit_NP} == {"step"}


def test_all_candidates_meet_constraints_that_leave_next_to_nothing():
    space = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)}, ["x + y <= 1e-3"])
    candidates = search(space, {"x": 0.5, "y": 0.5})
    assert len(candidates.points) == len(candidates.value_N)
    decoded = [space.decode(unit_P) for unit_P in candidates.points.unit_NP]
    assert all(space.allows(params) for params in decoded)


def test_mutations_stay_in_the_cube_and_change_every_copy():
    encoding = Encoding.of(SPACE)
    maximiser = Maximiser(SPACE, encoding, Bowl(np.zeros(8)), None, replace(THOROUGH, rounds=0))
    rng = np.random.default_rng(1)
    parent_SP = encoding.snap(rng.random((3, 5))).unit_NP
    child_NP = maximiser.mutated(parent_SP, 40, 0.3, rng)
    assert child_NP.shape == (120, 5)
    assert ((child_NP >= 0.0) & (child_NP <= 1.0)).all()
    changed_N = (child_NP != np.repeat(parent_SP, 40, axis=0)).any(axis=1)
    assert changed_N.mean() > 0.8  # a category is kept half of the time
