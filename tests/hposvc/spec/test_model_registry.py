"""The section `register`. If these fail, a mistake in it shows after the sweep."""

from dataclasses import replace

import pytest

from hposvc.errors import SpecError
from hposvc.spec.model_registry import Register, read_gate, register_problems
from hposvc.spec.sections import Engine


@pytest.mark.parametrize(
    ("value", "gate"), [(0, 0.0), (0.01, 0.01), ({"improvement": 2}, 2.0), (3, 3.0)]
)
def test_a_gate_is_a_number_or_says_what_it_is(value, gate):
    assert read_gate(value) == gate


@pytest.mark.parametrize("value", [-1, True, "a lot", float("nan"), float("inf"), {"worse": 1}, {}])
def test_what_is_no_gate_is_refused(value):
    with pytest.raises(ValueError, match=r"number from 0 up|no such key"):
        read_gate(value)


@pytest.mark.parametrize(
    "changes",
    [
        *({"model": "a/b"}, {"model": "a:b"}, {"model": "a'b"}, {"model": ".."}),
        *({"alias": "latest"}, {"alias": "v3"}, {"alias": "with space"}, {"alias": ""}),
    ],
)
def test_names_that_mlflow_refuses_are_refused_at_once(changes):
    with pytest.raises(SpecError):
        replace(Register("digits"), **changes)


def test_a_front_a_simulation_and_a_sweep_that_mlflow_does_not_see_have_nothing_to_register():
    register, sinks = Register("digits"), ("mlflow",)
    assert list(register_problems(None, Engine("ray"), 2, ())) == []
    assert list(register_problems(register, Engine("ray"), 1, sinks)) == []
    [front] = register_problems(register, Engine("ray"), 2, sinks)
    assert "front" in front.message
    [simulated] = register_problems(register, Engine("simulate", "a:b"), 1, sinks)
    assert "no" in simulated.message
    [unseen] = register_problems(register, Engine("ray"), 1, ("json_lines",))
    assert "tracking.send_to" in unseen.message
