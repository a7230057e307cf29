import pytest

from searchers import Choice, Float, Int, Space, create
from searchers.optimizer import Exhausted


def test_every_combination_comes_once_in_order_and_then_nothing():
    space = Space({"a": Choice(("x", "y")), "b": Int(1, 3, when={"a": ("y",)})})
    searcher = create("grid", space)
    asked = [searcher.ask().params for _ in range(4)]
    assert asked == [{"a": "x"}, *({"a": "y", "b": b} for b in (1, 2, 3))]
    with pytest.raises(Exhausted):
        searcher.ask()


def test_continuous_ranges_get_as_many_points_as_asked_for():
    searcher = create("grid", Space({"lr": Float(1e-4, 1e-2, log=True)}), resolution=3)
    assert [trial.params["lr"] for trial in searcher.ask(9)] == [1e-4, 1e-3, 1e-2]
    with pytest.raises(ValueError, match="resolution is 0; give 1 or more points"):
        create("grid", searcher.space, resolution=0)


def test_what_was_tried_elsewhere_is_left_out():
    searcher = create("grid", Space({"n": Int(1, 4)}))
    searcher.ask()
    searcher.add({"n": 3}, 0.5)
    assert [trial.params["n"] for trial in searcher.ask(9)] == [2, 4]
