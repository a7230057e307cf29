from searchers import Choice, Float, Space, create
from searchers.auto import choose


def test_few_trials_are_the_gaussian_process_and_many_are_tpe(digits):
    assert choose(digits, 0) == "gp"
    assert choose(digits, 1_000) == "gp"
    assert choose(digits, 1_001) == "tpe"


def test_wide_spaces_and_choices_of_many_kinds_are_tpe():
    assert choose(Space({f"x{i}": Float(0.0, 1.0) for i in range(50)}), 0) == "gp"
    assert choose(Space({f"x{i}": Float(0.0, 1.0) for i in range(51)}), 0) == "tpe"
    many = tuple(range(51))
    assert choose(Space({"kind": Choice(many)}), 0) == "tpe"
    assert choose(Space({"level": Choice(many, ordered=True)}), 0) == "gp"


def test_the_note_says_which_method_proposed(digits):
    assert create("auto", digits).ask().note["method"] == "gp"
