"""Planned features: names of keys and values that a later release will accept.

They are never ignored: a spec that uses one is refused. Remove a feature's line once it is built.
A test checks that docs/CONTRACT.md has every key of the spec, and none of these.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from hposvc.errors import Problem, shorten

NOT_YET = "not there yet (it comes with a later release)"


@dataclass(frozen=True)
class PlannedFeature:
    """A planned key, or planned values of an existing key."""

    key: str  # dotted
    values: Callable[[object], bool] | None = (
        None  # whether a value is planned; None: the whole key
    )
    name: str = ""  # a name of these values for people; empty: the value itself
    instead: str = ""  # advice on what to write until then

    def problem(self, value: object) -> Problem:
        """Return the problem of a spec that has `value` at this key."""
        path = tuple(self.key.split("."))
        if self.values is None:
            return Problem(path, NOT_YET, at_key=True)
        name = self.name or shorten(str(value))
        return Problem(path, f"{name} is {NOT_YET}", f"{self.instead}")


def _planned_keys(*keys: str) -> list[PlannedFeature]:
    return [PlannedFeature(key) for key in keys]


def _planned_words(key: str, words: Collection[str], instead: str) -> PlannedFeature:
    return PlannedFeature(key, lambda value: isinstance(value, str) and value in words, "", instead)


PLANNED = (
    *_planned_keys("queue"),
    _planned_words("resources.gpus_per_worker", ("auto",), "give a number"),
)


def planned_feature_problems(data: Mapping[str, object]) -> Iterator[Problem]:
    """Yield a problem for each planned feature that the spec uses."""
    for feature in PLANNED:
        section, _, key = feature.key.rpartition(".")
        mapping = data.get(section) if section else data
        value = mapping.get(key) if isinstance(mapping, Mapping) else None
        if value is not None and (feature.values is None or feature.values(value)):
            yield feature.problem(value)
