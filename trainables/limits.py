"""Types of fields that are read from JSON, each with its limits.

pydantic asks the annotations for the limits; it is not imported here.
"""

from collections.abc import Callable
from typing import Annotated, Any

NOT_FINITE = ("NaN", "Infinity", "-Infinity")  # JSON has no numbers for them


class Limits:
    """Limits of a type, as keys of pydantic's core schemas: `ge`, `max_length`, `strict`, ..."""

    def __init__(self, **limits: object) -> None:
        self.limits = limits

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        return {**handler(source), **self.limits}


def _finite_or_word(value: object) -> object:
    return float(f"{value}") if value in NOT_FINITE else value


_FLOAT = {"type": "float", "strict": True}
_WORD = {"type": "literal", "expected": [*NOT_FINITE]}
# `strict`: no text is taken for a number, and no truth value for 1.
Count = Annotated[int, Limits(strict=True, ge=0)]
OrderId = Annotated[int, Limits(strict=True, ge=0, le=2**31 - 1)]  # as a database's integers
Step = Annotated[int, Limits(strict=True, ge=1, le=2**53)]
Flag = Annotated[bool, Limits(strict=True)]
Energy = Annotated[float, Limits(strict=True, allow_inf_nan=False, ge=0)]
FiniteNumber = Annotated[float, Limits(strict=True, allow_inf_nan=False)]
# A number, or one of the words NOT_FINITE.
Number = Annotated[
    float,
    Limits(
        type="function-before",
        function={"type": "no-info", "function": _finite_or_word},
        schema=_FLOAT,
        json_schema_input_schema={"type": "union", "choices": [_FLOAT, _WORD]},
    ),
]
Name = Annotated[str, Limits(min_length=1, max_length=250)]
# A text with a limit is also one that UTF-8 can encode.
Text = Annotated[str, Limits(max_length=4096)]  # a path or a URL is no longer
LongText = Annotated[str, Limits(max_length=100_000)]  # as a traceback
