"""Stand-ins for suggested values, which notice when a function looks at a value.

A function may store and return a suggested value without looking at it; then one run stands for all
values. As soon as the function compares, counts or prints the value, `ValueInspected` is raised: a
BaseException, so that an `except Exception` of the function does not catch it.
"""

from collections.abc import Callable
from typing import Any, NoReturn

OPERATIONS = (
    *("lt", "le", "eq", "ne", "gt", "ge", "hash", "bool", "int", "float", "complex", "index"),
    *("round", "trunc", "floor", "ceil", "neg", "pos", "abs", "invert", "len", "iter", "contains"),
    *("getitem", "call", "enter", "str", "repr", "format", "bytes", "fspath"),
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul"),
    *("and", "or", "xor", "lshift", "rshift"),
    *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rdivmod", "rpow", "rmatmul"),
    *("rand", "ror", "rxor", "rlshift", "rrshift"),
)


class ValueInspected(BaseException):
    """Raised when the function looks at the values of some parameters."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.names = names


class Unseen:
    """A stand-in for a parameter's value: any use but passing it on raises `ValueInspected`."""

    __slots__ = ("_suggested",)

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_suggested", name)

    def __getattr__(self, name: str) -> NoReturn:
        raise ValueInspected(self._suggested)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Raise `ValueInspected`, as isinstance reads this attribute."""
        raise ValueInspected(self._suggested)


class Continuous(Unseen):
    """A stand-in for the value of a range without steps.

    Printing it is allowed: the text `<name>` cannot become part of a parameter's name.
    """

    __slots__ = ()


def _make_raising_method() -> Callable[..., NoReturn]:
    def look(self: Unseen, *_: Any) -> NoReturn:
        raise ValueInspected(self._suggested)

    return look


def _format_placeholder(self: Unseen, *_: Any) -> str:
    return f"<{self._suggested}>"


for operation in OPERATIONS:
    setattr(Unseen, f"__{operation}__", _make_raising_method())
for operation in ("str", "repr", "format"):
    setattr(Continuous, f"__{operation}__", _format_placeholder)
