"""Plain data as dataclasses. If these fail, a mistake in a spec is told in pydantic's words."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import Field

from hposvc.errors import SpecError
from hposvc.spec.parsing.coercion import fill
from hposvc.spec.types import CLOSED


@dataclass(frozen=True)
class Inner:
    size: int
    mode: Literal["fast", "slow"] = "fast"
    __pydantic_config__ = CLOSED

    def __post_init__(self):
        if self.size == 13:
            raise ValueError("size is 13; choose a luckier number")


@dataclass(frozen=True)
class Outer:
    inner: Inner
    rate: Annotated[float, Field(gt=0)] = 1.0
    names: tuple[str, ...] = ()
    __pydantic_config__ = CLOSED


def refused(data):
    with pytest.raises(SpecError) as error:
        fill(Outer, data)
    return {problem.path: problem.text for problem in error.value.problems}


def test_nested_data_becomes_nested_dataclasses():
    data = {"inner": {"size": 3, "mode": "slow"}, "rate": 2, "names": ["a"]}
    assert fill(Outer, data) == Outer(Inner(3, "slow"), 2.0, ("a",))


@pytest.mark.parametrize(
    ("inner", "key", "said"),
    [
        ({"size": True}, "size", "number"),
        ({}, "size", "is missing"),
        ({"size": 3, "mode": "quick"}, "mode", "fast"),
        ({"size": 3, "sise": 4}, "sise", "size"),
        ({"size": 13}, "size", "is 13; choose a luckier number"),
    ],
)
def test_a_misfit_has_its_path_and_a_remedy(inner, key, said):
    [(path, message)] = refused({"inner": inner}).items()
    assert path == ("inner", key)
    assert said in message
