"""A search method with its options, which are the fields of its class, and what a space allows.

Values are looked at where a field is a number, a text, a truth value or a mapping.
"""

import dataclasses
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Protocol, cast, get_origin, runtime_checkable

from searchers.methods import load
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
class Choosy(Protocol):
    """A searcher whose options do not suit every space."""

    def check(self, space: Space) -> None:
        """Raise a ValueError that says what does not suit this one; a SpaceError says where."""


def build(method: str, options: Mapping[str, object]) -> Searcher:
    """The searcher of a method, see `searchers.methods.load`.

    Raises:
        ValueError: no such method or option, or a value that the option does not take.
    """
    kind = load(method)
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    known = {field.name: field.type for field in fields}
    for name, value in options.items():
        if name not in known:
            raise ValueError(f"method {method!r} has no option {name!r}: {nearest(name, known)}")
        wanted = _misfit(known[name], value)
        if wanted:
            raise ValueError(f"method {method!r}: {name} is {value!r}; give {wanted}")
    return cast(Searcher, kind(**options))


def check(searcher: Searcher, space: Space) -> None:
    """See that the options suit the space.

    Raises:
        ValueError: they do not.
    """
    if isinstance(searcher, Choosy):
        searcher.check(space)


def _misfit(hint: Any, value: object) -> str | None:
    """What would fit; None: this does, or the type says nothing that is looked at."""
    kind, wanted = KINDS.get(get_origin(hint) or hint, (object, ""))
    is_other = isinstance(value, bool) and kind in (Integral, Real)
    if is_other or not isinstance(value, kind):
        return wanted
    return wanted if kind is Real and not math.isfinite(cast(float, value)) else None
