"""What the contract promises and is not there yet, by the piece of work that brings it.

Nothing of it is ignored: a spec that uses it is refused. Whoever builds a feature removes its line.
A test holds this table, and the keys of the spec, against docs/CONTRACT.md.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from hposvc.reading.problems import Problem, cut

PIECES = {
    "next": "a later release",
}


@dataclass(frozen=True)
class Later:
    """A key, or certain values of a key that is there."""

    key: str  # dotted
    piece: str
    values: Callable[[object], bool] | None = None  # which are meant; None: the whole key
    name: str = ""  # what people call these values; empty: they are words and name themselves
    instead: str = ""  # what to write until then

    def problem(self, value: object) -> Problem:
        """What to tell someone who wrote `value` there."""
        message = f"not there yet (it comes with {PIECES[self.piece]})"
        path = tuple(self.key.split("."))
        if self.values is None:
            return Problem(path, message, at_key=True)
        name = self.name or cut(str(value))
        return Problem(path, f"{name} is {message}; {self.instead}")


def _keys(piece: str, *keys: str) -> list[Later]:
    return [Later(key, piece) for key in keys]


def _words(piece: str, key: str, words: Collection[str], instead: str) -> Later:
    return Later(key, piece, lambda value: isinstance(value, str) and value in words, "", instead)


def _text(pattern: str) -> Callable[[object], bool]:
    matches = re.compile(pattern).fullmatch
    return lambda value: isinstance(value, str) and matches(value) is not None


LATER = (
    *_keys("next", "queue", "notify", "environment.image"),
    _words("next", "resources.gpus_per_worker", ("auto",), "give a number"),
)


def not_there_yet(data: Mapping[str, object]) -> Iterator[Problem]:
    """A problem for each thing that the spec uses and that is still to come."""
    for later in LATER:
        section, _, key = later.key.rpartition(".")
        mapping = data.get(section) if section else data
        value = mapping.get(key) if isinstance(mapping, Mapping) else None
        if value is not None and (later.values is None or later.values(value)):
            yield later.problem(value)
