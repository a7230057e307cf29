import dataclasses

import pytest

from searchers.methods import METHODS, load_method


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_a_frozen_dataclass_that_refuses_unknown_options(method):
    kind = load_method(method)
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen
    assert kind.__pydantic_config__ == {"extra": "forbid"}
    assert isinstance(kind.uses_results, bool)
    assert kind() == kind()


def test_a_class_of_the_users_own_is_loaded_by_its_path():
    assert load_method("searchers.grid:Grid") is load_method("grid")


def test_a_class_in_a_file_is_loaded_once_for_each_content(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("class Mine:\n    number = 1\n")
    first = load_method(f"{file}:Mine")
    assert load_method(f"{file}:Mine") is first
    file.write_text("class Mine:\n    number = 22\n")
    assert load_method(f"{file}:Mine").number == 22


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("quantum", "there is no search method 'quantum': known: auto, cmaes, gp"),
        ("sobl", "did you mean 'sobol'"),
        ("no/such.py:Thing", "cannot be loaded: .*No such file or directory"),
        ("no_such_module:Thing", "cannot be loaded: No module named 'no_such_module'"),
        ("searchers.grid:Gird", "cannot be loaded: .*has no attribute 'Gird'"),
        ("searchers.grid:MARK", "is 'grid'; name a class"),
    ],
)
def test_a_method_that_cannot_be_used_says_why(method, message):
    with pytest.raises(ValueError, match=message):
        load_method(method)
