import pytest

from searchers import Int, Space, create


def test_what_was_tried_elsewhere_is_left_out():
    searcher = create("grid", Space({"n": Int(1, 4)}))
    searcher.ask()
    searcher.add({"n": 3}, 0.5)
    assert [trial.params["n"] for trial in searcher.ask(9)] == [2, 4]


@pytest.mark.parametrize(
    ("declared", "key"),
    [
        ({"values": [1, 2], "weights": [1, 3]}, "weights"),
        ({"min": 0.0, "max": 1.0, "normal": {"mean": 0.5, "deviation": 0.1}}, "normal"),
        ({"shares": 3, "prior": [1, 2, 3]}, "prior"),
        ({"shares": 3, "concentration": 5}, "concentration"),
    ],
)
def test_what_is_about_draws_is_refused(declared, key):
    with pytest.raises(ValueError, match=f"one by one, and {key} is about draws; leave {key} out"):
        create("grid", Space.from_dict({"p": declared}))
