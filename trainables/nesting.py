"""Names with points: a trial's code gets `optimizer.lr` as `lr` within `optimizer`.

A function gets a mapping within its configuration; a dataclass gets a field that is a dataclass, or
a mapping.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, get_args, get_type_hints

from trainables.order import Params

POINT = "."


def clash(names: Collection[str]) -> tuple[str, str] | None:
    """Return two names of which one would be a value and a mapping at once; None: there are none.

    Returns:
        the shorter name and the longer one: `optimizer` and `optimizer.lr`.
    """
    for name in names:
        parts = name.split(POINT)
        for end in range(1, len(parts)):
            if (above := POINT.join(parts[:end])) in names:
                return above, name
    return None


def nest(params: Params) -> dict[str, Any]:
    """Return `{"optimizer": {"lr": 0.1}}` for `{"optimizer.lr": 0.1}`; no two names clash."""
    nested: dict[str, Any] = {}
    for name, value in params.items():
        *groups, last = name.split(POINT)
        inner = nested
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = value
    return nested


def build(cls: type, nested: Mapping[str, Any]) -> Any:
    """Return an object of a dataclass; fields within a dataclass within it keep their defaults."""
    return cls(**_arguments(cls, nested))


def owner_of(cls: type, name: str) -> tuple[type, str]:
    """Return the dataclass that needs a field for a parameter: `cls`, or one within it.

    Returns:
        the dataclass, and the field's name.
    """
    first, point, rest = name.partition(POINT)
    inner = _inner(cls, first) if point else None
    return (cls, first) if inner is None else owner_of(inner, rest)


def field_names(cls: type) -> list[str]:
    """Return the fields that a dataclass takes."""
    return [field.name for field in dataclasses.fields(cls) if field.init]


def required(cls: type, given: Iterable[str]) -> Iterator[str]:
    """Yield the names of the parameters that must be there, with points.

    Args:
        given: the names of all parameters.
    """
    names = list(given)
    for field in dataclasses.fields(cls):
        has_default = field.default is not field.default_factory
        if not field.init or has_default or field.name in names:
            continue
        beneath = [name.partition(POINT)[2] for name in names if name.startswith(f"{field.name}.")]
        inner = _inner(cls, field.name) if beneath else None
        if inner is not None:
            yield from (f"{field.name}.{name}" for name in required(inner, beneath))
        elif not beneath:
            yield field.name


def _inner(cls: type, name: str) -> type | None:
    """Return the dataclass that a field takes; None: it takes something else, or there is none."""
    if name not in field_names(cls):
        return None
    hint = get_type_hints(cls)[name]
    kinds = (kind for kind in (hint, *get_args(hint)) if isinstance(kind, type))
    return next(filter(dataclasses.is_dataclass, kinds), None)


def _arguments(cls: type, nested: Mapping[str, Any]) -> dict[str, Any]:
    arguments = {**nested}
    for field in dataclasses.fields(cls):
        value = nested.get(field.name)
        inner = _inner(cls, field.name) if isinstance(value, dict) else None
        if isinstance(value, dict) and inner is not None:
            arguments[field.name] = _filled(inner, field, value)
    return arguments


def _filled(inner: type, field: dataclasses.Field[Any], nested: Mapping[str, Any]) -> Any:
    given = _arguments(inner, nested)
    factory = field.default_factory
    default: Any = field.default if factory is dataclasses.MISSING else factory()
    has_default = type(default) is inner
    return dataclasses.replace(default, **given) if has_default else inner(**given)
