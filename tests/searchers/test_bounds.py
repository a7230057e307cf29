"""Bounds that stand in types."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import TypeAdapter

from searchers.bounds import COUNT, AtMost, bounds_in

RESOURCE = AtMost(1e5, "write auto", least=1e-4)


def test_a_number_beyond_its_bound_gets_advice():
    assert AtMost(COUNT).advice(COUNT) == ""
    assert AtMost(COUNT).advice(COUNT + 1) == "give 1,000,000,000 or less"
    assert RESOURCE.advice(1e6) == "give 100,000 or less, or write auto"
    assert RESOURCE.advice(1e-5) == "give 0.0001 or more"
    assert RESOURCE.advice(0) == ""


def test_bounds_are_found_at_any_depth():
    assert [*bounds_in(Mapping[str, Annotated[float, RESOURCE] | None])] == [RESOURCE]
    assert [*bounds_in(dict[str, float])] == []


def test_a_json_schema_has_the_bound_of_each_number():
    schema = TypeAdapter(Annotated[int | str, AtMost(9)]).json_schema()
    assert schema == {"anyOf": [{"type": "integer", "maximum": 9}, {"type": "string"}]}
