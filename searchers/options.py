"""Build a searcher from a method's name and options, and check it against a space.

Options are the fields of the method's class. Values are checked where a field is a number, a text,
a truth value or a mapping.
"""

import dataclasses
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Annotated, Any, Protocol, cast, get_args, get_origin, runtime_checkable

from searchers.methods import load_method
from searchers.names import nearest
from searchers.searcher import Searcher
from searchers.space import Space

KINDS: Mapping[object, tuple[type, str]] = {
    bool: (bool, "True or False"),
    int: (Integral, "a whole number"),
    float: (Real, "a finite number"),
    str: (str, "a text"),
    Mapping: (Mapping, "a mapping, {name: ...}"),
}


@runtime_checkable
class ChecksSpace(Protocol):
    """A searcher whose options do not suit every space."""

    def check(self, space: Space) -> None:
        """Raise a ValueError if the options do not suit `space`; a SpaceError says where."""


def build_searcher(method: str, options: Mapping[str, object]) -> Searcher:
    """Return the searcher of a method, see `searchers.methods.load_method`.

    Raises:
        ValueError: no such method or option, or a value that the option does not take.
    """
    kind = load_method(method)
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    types = {field.name: field.type for field in fields}
    for name, value in options.items():
        if name not in types:
            raise ValueError(f"method {method!r} has no option {name!r}: {nearest(name, types)}")
        expected = _expected_kind(types[name], value)
        if expected:
            raise ValueError(f"method {method!r}: {name} is {value!r}; give {expected}")
    return cast(Searcher, kind(**options))


def check_searcher(searcher: Searcher, space: Space) -> None:
    """Check that the options of a searcher suit the space.

    Raises:
        ValueError: they do not.
    """
    if isinstance(searcher, ChecksSpace):
        searcher.check(space)


def _expected_kind(hint: Any, value: object) -> str | None:
    """Return the kind of value that `hint` takes; None: `value` fits, or `hint` is not checked."""
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    kind, expected = KINDS.get(get_origin(plain) or plain, (object, ""))
    is_truth_value = isinstance(value, bool) and kind in (Integral, Real)
    if is_truth_value or not isinstance(value, kind):
        return expected
    return expected if kind is Real and not math.isfinite(cast(float, value)) else None
