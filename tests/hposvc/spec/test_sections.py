"""The section `register`. If these fail, a mistake in it shows after the sweep."""

from dataclasses import replace

import pytest

from hposvc.errors import SpecError
from hposvc.spec.sections import Register, read_gate


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
