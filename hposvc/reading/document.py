"""A document: plain data, and the place of every key and value where it was read from a file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral, Real
from pathlib import Path as FilePath

from hposvc.reading.foreign import declared, object_message
from hposvc.reading.problems import Path, Problem, SpecError, fail, shown
from hposvc.reading.reader import DEPTH, VALUES, Mark, Reader, check_size

BYTES = 2**20


@dataclass(frozen=True)
class Document:
    """Plain data (dict, list, str, int, float, bool, None), and where it came from."""

    data: dict[str, object]
    name: str = "spec"  # of the file
    keys: Mapping[Path, Mark] = field(default_factory=dict)  # empty unless read from text
    values: Mapping[Path, Mark] = field(default_factory=dict)
    sets: frozenset[Path] = frozenset()  # what --set put in

    def place(self, problem: Problem) -> Problem:
        """The problem with its place: of its path, or else of the nearest parent."""
        if problem.path and any(map(partial(_overlap, problem.path), self.sets)):
            return replace(problem, place="--set")
        mark = self._mark(problem)
        return replace(
            problem, place=f"{self.name}:{mark.line}:{mark.column}" if mark else self.name
        )

    def order(self, problem: Problem) -> Mark:
        """A sort key: problems in the order in which the document reads."""
        return self._mark(problem) or Mark(0, 0)

    def _mark(self, problem: Problem) -> Mark | None:
        if problem.at_key and problem.path in self.keys:
            return self.keys[problem.path]
        parents = (problem.path[:end] for end in range(len(problem.path), -1, -1))
        return next((self.values[path] for path in parents if path in self.values), None)


def _overlap(one: Path, other: Path) -> bool:
    """Whether one path leads through the other."""
    return all(left == right for left, right in zip(one, other, strict=False))


def read_file(path: FilePath) -> Document:
    """The document in a file.

    Raises:
        SpecError: no such file, more than 1 MiB, not UTF-8, or whatever `read_text` refuses.
    """
    place = str(path)
    try:
        with path.open("rb") as file:
            raw = file.read(BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise fail(f"cannot be read: {reason.lower()}", place=place) from error
    if len(raw) > BYTES:
        raise fail("is larger than 1 MiB; is it a spec?", place=place)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        message = f"byte 0x{raw[error.start]:02X} is not UTF-8; save the file as UTF-8 text"
        raise fail(message, place=f"{place}:{line}:{column}") from error
    return read_text(text, place)


def read_text(text: str, name: str) -> Document:
    """The document in a text; `name` is what its errors call it.

    Raises:
        SpecError: not YAML 1.2, more than data, too much of it, or no mapping.
    """
    reader = Reader(name)
    data = reader.read(text)
    if not isinstance(data, dict):
        found = "is empty" if data is None else f"is {shown(data)}"
        message = f"{found}; a spec is a mapping (name: ..., metric: ..., parameters: ...)"
        raise fail(message, place=f"{name}:1:1")
    return Document(data, name, reader.keys, reader.values)


def read_value(text: str) -> object:
    """One value as YAML writes it in a line: `1e-3`, `[1, 2]`, `{min: 0, max: 1}`, a word."""
    return Reader("value").read(text)


def from_mapping(mapping: Mapping[str, object]) -> Document:
    """The document that a Python mapping holds.

    Raises:
        SpecError: something in it is more than plain data.
    """
    document = Document({})
    try:
        data = {key: plain(value, key) for key, value in _text_keys(mapping, ())}
    except SpecError as error:
        raise error.at(document.name) from error
    return replace(document, data=data)


def plain(value: object, *path: str | int) -> object:
    """A copy of `value` in plain data alone: tuples become lists, numpy's numbers Python's.

    Raises:
        SpecError: a Python object, a number that is not finite, too deep, or too much.
    """
    return _plain(value, path, iter(range(VALUES)))


def _plain(value: object, path: Path, left: Iterator[int]) -> object:
    if next(left, None) is None or len(path) > DEPTH:
        message = f"nests deeper than {DEPTH} levels, or holds more than {VALUES:,} values"
        raise fail(message, *path[:1])
    if path[:1] == ("parameters",) and len(path) == 2:
        value = declared(value, *path)
    match value:
        case None | bool():
            return value
        case str():
            return str(value)
        case Integral():
            return _sized(int(value), path)
        case Real():
            return _sized(float(value), path)
        case Mapping():
            items = _text_keys(value, path)
            return {key: _plain(item, (*path, key), left) for key, item in items}
        case list() | tuple():
            return [_plain(item, (*path, place), left) for place, item in enumerate(value)]
    raise fail(object_message(value, path), *path)


def _sized(number: float, path: Path) -> float:
    try:
        return check_size(number)
    except ValueError as error:
        raise fail(str(error), *path) from error


def _text_keys(mapping: Mapping[str, object], path: Path) -> Iterator[tuple[str, object]]:
    for key, value in mapping.items():
        if not isinstance(key, str):
            raise fail(f"the key {key!r} is no text; write {str(key)!r}", *path)
        yield str(key), value
