"""Bounds of numbers that users give, which stand in the types of options and of keys of a spec.

A bound is far above what anybody needs, and low enough that a process which reads or uses the
number builds nothing that exhausts its memory. A number that is only compared has none.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

STEPS = 10**15  # floats hold all whole numbers up to here
COUNT = 10**9  # of what is counted, but never built in advance
AT_ONCE = 10**5  # of what exists at the same time


@dataclass(frozen=True)
class AtMost:
    """The largest number of a type: `Annotated[int, AtMost(COUNT)]`."""

    most: float
    otherwise: str = ""  # advice beside the bound
    least: float = 0.0  # smallest number but 0

    def advice(self, number: float) -> str:
        """Return advice on what to give instead of a number; empty: it is within the bound."""
        if 0 < number < self.least:
            return f"give {self.least:.4f} or more"
        if number <= self.most:
            return ""
        return f"give {self.most:,.0f} or less" + (f", or {self.otherwise}" * bool(self.otherwise))

    def __get_pydantic_json_schema__(
        self, core: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the JSON schema of a type with the bound of its numbers."""
        schema = deepcopy(handler(core))
        for branch in (schema, *schema.get("anyOf", ())):
            if branch.get("type") in ("integer", "number"):
                branch["maximum"] = self.most
        return schema


def annotations_of(cls: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields, with what `Annotated` adds to them."""
    return get_type_hints(cls, include_extras=True)


def bounds_in(annotation: Any) -> Iterator[AtMost]:
    """Yield the bounds in a type, at any depth."""
    for part in get_args(annotation):
        if isinstance(part, AtMost):
            yield part
        else:
            yield from bounds_in(part)
