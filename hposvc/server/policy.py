"""The operator's defaults and limits of specs.

Limits are checked on the whole spec, with its defaults: a key that a spec leaves out is judged by
its default. Both are given by the dotted keys of the page `spec`.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints
from urllib.parse import unquote

from pydantic import TypeAdapter, ValidationError

from hposvc import spec as specs
from hposvc.errors import Problem, SpecError, shown
from hposvc.spec import SweepSpec, expand
from hposvc.spec.extension import accepted, changed
from hposvc.spec.parsing.document import Document
from hposvc.spec.registry import PlugIn
from hposvc.spec.types import CLOSED, Word
from searchers import nearest
from trainables.storage import stores

Defaults = Mapping[str, object]  # by dotted key
ANY = TypeAdapter(object)


@dataclass(frozen=True)
class Bound:
    """Values that the operator allows for a key."""

    max: object = None  # a number, or a text that the key takes, like 24h
    min: object = None
    one_of: tuple[object, ...] | None = None
    under: tuple[Word, ...] | None = None  # folders and URLs
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if all(rule is None for rule in vars(self).values()):
            raise ValueError("allows everything; give max, min, one_of or under")

    def problem(self, key: str, value: object) -> str:
        """Return what the bound has against a value of the frozen spec; empty: nothing."""
        low: Any = value
        high: Any = value
        if isinstance(value, Mapping):  # `resources.workers` may be a range
            low, high = value.get("min"), value.get("max")
        read = _reader(key)
        if self.max is not None and not (_is_number(high) and high <= read(self.max)):
            return f"{self.max} at most"
        if self.min is not None and _is_number(low) and low < read(self.min):
            return f"{self.min} at least"
        if self.one_of is not None:
            allowed = [read(choice) for choice in self.one_of]
            values = value if isinstance(value, list) else [value]
            if any(item not in allowed for item in values):
                return f"only {', '.join(map(str, self.one_of))}"
        if self.under is None or value is None:
            return ""
        if not any(_lies_under(f"{value}", root) for root in self.under):
            return f"only what lies under {', '.join(self.under)}"
        return ""


Limits = Mapping[str, Bound]  # by dotted key


def fill_defaults(defaults: Defaults, document: Document) -> Document:
    """Return a document with the operator's values of keys that it leaves out."""
    data = expand(document.data)
    for key, value in defaults.items():
        *sections, name = key.split(".")
        target: Any = data
        for section in sections:
            # A copy, since the caller's document stays as it is.
            inner = target.get(section, {})
            target[section] = dict(inner) if isinstance(inner, Mapping) else inner
            target = target[section]
            if not isinstance(target, dict):
                break  # it is wrong, which the spec's own checks report
        else:
            target.setdefault(name, value)
    return replace(document, data=data)


def check_extension(
    limits: Limits, spec: SweepSpec, changes: Mapping[str, object], trials: int
) -> None:
    """Check that new values of a sweep's limits keep the operator's.

    Args:
        trials: the number of trials so far, to which an increment may add.

    Raises:
        SpecError: a value does not fit, or does not keep a limit.
    """
    touched = {
        key: bound
        for key, bound in limits.items()
        if any(f"{key}.".startswith(f"{change}.") for change in changes)
    }
    check_limits(touched, changed(spec, accepted(spec, changes, trials)))


def check_limits(limits: Limits, spec: SweepSpec, document: Document | None = None) -> None:
    """Check that a spec keeps the operator's limits.

    Args:
        document: gives problems their places; None: the spec comes from the journal.

    Raises:
        SpecError: all limits that it does not keep.
    """
    frozen = specs.dump(spec)
    problems = [
        Problem(tuple(key.split(".")), f"is {shown(value)}", f"this server allows {allowed}")
        for key, bound in limits.items()
        for value in [_value(frozen, key)]
        if (allowed := bound.problem(key, value))
    ]
    if problems:
        raise SpecError(problems if document is None else map(document.locate, problems))


def key_problems(defaults: Defaults, limits: Limits) -> Iterator[Problem]:
    """Yield what is wrong with the operator's own keys and values."""
    for key, value in defaults.items():
        yield from (problem.under("defaults", key) for problem in _misfits(key, value))
    for key, bound in limits.items():
        yield from (problem.under("limits", key) for problem in _bound_problems(key, bound))


def _bound_problems(key: str, bound: Bound) -> Iterator[Problem]:
    if unknown := [*_unknown(key)]:
        yield from unknown
        return
    for name in ("max", "min"):
        value = getattr(bound, name)
        if value is None:
            continue
        misfits = [*_misfits(key, value)]
        yield from (problem.under(name) for problem in misfits)
        if not misfits and not _is_number(_reader(key)(value)):
            yield Problem((name,), f"is {shown(value)}, which is no number", "use one_of")
    for index, value in enumerate(bound.one_of or ()):
        yield from (problem.under("one_of", index) for problem in _misfits(key, value))


def _misfits(key: str, value: object) -> Iterator[Problem]:
    unknown = [*_unknown(key)]
    yield from unknown
    if not unknown:
        try:
            _reader(key)(value)
        except ValidationError as error:
            reason = error.errors()[0]["msg"].removeprefix("Value error, ")
            own = reason if reason.startswith("is ") else f"is {shown(value)}; {reason}"
            yield Problem((), own)


def _unknown(key: str) -> Iterator[Problem]:
    """Yield a problem if specs have no such key."""
    hint: Any = SweepSpec
    for part in key.split("."):
        if not dataclasses.is_dataclass(hint) or hint is PlugIn:
            if hint in (PlugIn, object) or get_origin(hint) in (dict, Mapping):
                return  # names of users' own, or options of a plug-in
            yield Problem((), f"{key}: no such key, as {part} would be within a value", at_key=True)
            return
        names = [field.name for field in dataclasses.fields(hint)]
        if part not in names:
            yield Problem((), f"no such key of specs as {part}", nearest(part, names), at_key=True)
            return
        hint = _bare(_hints(hint)[part])


def _reader(key: str) -> Any:
    """Return a function that reads a value as a spec's key does, as it is in the frozen spec."""
    adapter = _adapter(key)
    return lambda value: adapter.dump_python(adapter.validate_json(json.dumps(value), strict=True))


@cache
def _adapter(key: str) -> TypeAdapter[Any]:
    hint: Any = SweepSpec
    for part in key.split("."):
        inner = _bare(hint)
        if not dataclasses.is_dataclass(inner) or inner is PlugIn:
            return ANY
        hint = _hints(inner)[part]
    if get_origin(_bare(hint)) in (tuple, list):  # a bound is about its items
        return ANY
    return TypeAdapter(hint)


def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


def _bare(hint: Any) -> Any:
    """Return a type without None and annotations."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) is Union or type(hint).__name__ == "UnionType":
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        return _bare(kinds[0]) if len(kinds) == 1 else hint
    return hint


def _value(frozen: Mapping[str, Any], key: str) -> object:
    value: Any = frozen
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _lies_under(place: str, root: str) -> bool:
    if stores.is_url(place) or stores.is_url(root):
        parts, allowed = _parts(place), _parts(root)
        return ".." not in parts and parts[: len(allowed)] == allowed
    return Path(place).is_absolute() and Path(place).resolve().is_relative_to(Path(root).resolve())


def _parts(url: str) -> list[str]:
    """Return the protocol of a URL, then its parts, as a store may read them: decoded.

    Empty: it is encoded more than twice over, which nobody does without an aim.
    """
    url = unquote(unquote(url))
    if unquote(url) != url:
        return []
    protocol, _, rest = url.partition(stores.MARK)
    return [protocol, *(part for part in rest.split("/") if part not in ("", "."))]
