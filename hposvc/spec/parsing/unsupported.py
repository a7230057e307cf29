"""Planned features: names of keys and values that a later release will accept.

They are never ignored: a spec that uses one is refused. Remove a feature's line once it is built.
A test checks that reference/spec.md has every key of the spec, and none of these.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hposvc.errors import Problem

NOT_YET = "not there yet (it comes with a later release)"


class PlannedFeature(NamedTuple):
    """A planned key, or planned words as values of an existing key."""

    key: str  # dotted
    words: tuple[str, ...] = ()  # empty: the whole key
    instead: str = ""  # advice on what to write until then


PLANNED = (PlannedFeature("resources.gpus_per_worker", ("auto",), "give a number"),)


def planned_feature_problems(data: Mapping[str, object]) -> Iterator[Problem]:
    """Yield a problem for each planned feature that the spec uses."""
    for feature in PLANNED:
        value: Any = data
        path = tuple(feature.key.split("."))
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None and not feature.words:
            yield Problem(path, NOT_YET, at_key=True)
        elif isinstance(value, str) and value in feature.words:
            yield Problem(path, f"{value} is {NOT_YET}", feature.instead)
