"""The sections `register` and `warm_start`."""

from dataclasses import replace

import pytest

from hposvc.errors import SpecError
from hposvc.spec.sections import Register, WarmStart, read_gate, read_warm_start, warm_start_mapping


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


@pytest.mark.parametrize(
    ("value", "warm"),
    [
        ({"from": "a-1"}, WarmStart(("a-1",), 0, auto=False)),
        ({"from": ["a-1", "b-2"], "top": 3}, WarmStart(("a-1", "b-2"), 3, auto=False)),
        ("auto", WarmStart()),
        ({"top": 3}, WarmStart((), 3)),
        ({"from": "auto", "top": 3}, WarmStart((), 3)),
        ({"from": "auto", "found": ["a-1"]}, WarmStart(("a-1",))),
    ],
)
def test_a_warm_start_is_read_and_comes_back(value, warm):
    assert read_warm_start(value) == warm
    assert read_warm_start(warm_start_mapping(warm)) == warm


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        ({"form": "a-1"}, [("form",)]),
        ({"from": 3, "top": -1}, [("from",), ("top",)]),
        ({"from": ["a", ""]}, [("from",)]),
        ({"from": ["a", "a"]}, [("from",)]),
    ],
)
def test_each_mistake_of_a_warm_start_is_told_where_it_is(value, paths):
    with pytest.raises(SpecError) as refused:
        read_warm_start(value)
    assert [problem.path for problem in refused.value.problems] == paths
