import pytest

from hposvc.errors import SpecError
from hposvc.spec.warm_start import WarmStart, read, to_mapping


@pytest.mark.parametrize(
    ("value", "warm"),
    [
        ({"from": "a-1"}, WarmStart(("a-1",), 0)),
        ({"from": ["a-1", "b-2"], "top": 3}, WarmStart(("a-1", "b-2"), 3)),
        ("auto", WarmStart(())),
        ({"from": "auto", "top": 3}, WarmStart((), 3)),
    ],
)
def test_a_section_is_read_and_comes_back(value, warm):
    assert read(value) == warm
    assert read(to_mapping(warm)) == warm


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        ({"form": "a-1"}, [("form",), ("from",)]),
        ({"from": 3, "top": -1}, [("from",), ("top",)]),
        ({"from": ["a", ""]}, [("from",)]),
        ({"from": ["a", "a"]}, [("from",)]),
    ],
)
def test_each_mistake_is_told_where_it_is(value, paths):
    with pytest.raises(SpecError) as refused:
        read(value)
    assert [problem.path for problem in refused.value.problems] == paths
