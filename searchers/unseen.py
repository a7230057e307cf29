"""What stands for a suggested value while nobody looks at it.

A function that suggests may store and return a value without it mattering which one it is. As soon
as it compares, counts or prints it, `Looked` passes through: a BaseException, so that no `except`
of the function keeps it.
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


class Looked(BaseException):
    """The value of some parameters matters to the function."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.names = names


class Unseen:
    """The value of a parameter; whatever is done with it raises `Looked`, but to pass it on."""

    __slots__ = ("_suggested",)

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_suggested", name)

    def __getattr__(self, name: str) -> NoReturn:
        raise Looked(self._suggested)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """What isinstance asks for."""
        raise Looked(self._suggested)


class Continuous(Unseen):
    """The value of a range without steps; it may be printed, since a name cannot hold the text."""

    __slots__ = ()


def _look() -> Callable[..., NoReturn]:
    def look(self: Unseen, *_: Any) -> NoReturn:
        raise Looked(self._suggested)

    return look


def _show(self: Unseen, *_: Any) -> str:
    return f"<{self._suggested}>"


for operation in OPERATIONS:
    setattr(Unseen, f"__{operation}__", _look())
for operation in ("str", "repr", "format"):
    setattr(Continuous, f"__{operation}__", _show)
