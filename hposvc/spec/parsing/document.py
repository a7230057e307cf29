"""Documents: plain data, with the place of every key and value if it was read from a file."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from io import StringIO
from numbers import Integral, Real
from pathlib import Path, PurePath
from shlex import quote

from ruamel.yaml import YAML

from hposvc.errors import KeyPath, Problem, SpecError, fail, shown
from hposvc.spec.parsing.foreign_domains import declared, object_message
from hposvc.spec.parsing.yaml_reader import MAX_DEPTH, MAX_VALUES, Mark, Reader, check_size

MAX_BYTES = 2**20
DASH, STDIN = Path("-"), "<stdin>"


@dataclass(frozen=True)
class Document:
    """Plain data (dict, list, str, int, float, bool, None), and its places in the source."""

    data: dict[str, object]
    name: str = "spec"  # the file's name
    keys: Mapping[KeyPath, Mark] = field(default_factory=dict)  # empty unless read from text
    values: Mapping[KeyPath, Mark] = field(default_factory=dict)
    sets: frozenset[KeyPath] = frozenset()  # paths of the values from --set

    def locate(self, problem: Problem) -> Problem:
        """Return the problem with the place of its path, or else of the nearest parent."""
        path = problem.path
        # One path is a prefix of the other.
        if path and any(path[: len(key)] == key[: len(path)] for key in self.sets):
            return replace(problem, place="--set")
        mark = self._mark(problem)
        return replace(
            problem, place=f"{self.name}:{mark.line}:{mark.column}" if mark else self.name
        )

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Give the problems that the block raises their places, in the document's order."""
        try:
            yield
        except SpecError as error:
            problems = sorted(error.problems, key=lambda each: self._mark(each) or Mark(0, 0))
            raise SpecError(map(self.locate, problems)) from error

    def _mark(self, problem: Problem) -> Mark | None:
        if problem.at_key and problem.path in self.keys:
            return self.keys[problem.path]
        parents = (problem.path[:end] for end in range(len(problem.path), -1, -1))
        return next((self.values[path] for path in parents if path in self.values), None)


def read_file(path: Path) -> Document:
    """Return the document in a file, or on standard input if the path is `-`.

    Raises:
        SpecError: there is no such file, it is larger than 1 MiB or not UTF-8, or `read_text`
            refuses it.
    """
    place = STDIN if path == DASH else str(path)
    if place.endswith(".py"):
        fix = f"`hposvc init {quote(place)}` writes a spec for a script"
        raise fail("is Python, no spec", fix=fix, place=place)
    try:
        with nullcontext(sys.stdin.buffer) if path == DASH else path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise fail(f"cannot be read: {reason.lower()}", place=place) from error
    if len(raw) > MAX_BYTES:
        raise fail("is larger than 1 MiB", fix="is it a spec?", place=place)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        message = f"byte 0x{raw[error.start]:02X} is not UTF-8"
        fix = "save the file as UTF-8 text"
        raise fail(message, fix=fix, place=f"{place}:{line}:{column}") from error
    return read_text(text, place)


def read_text(text: str, name: str) -> Document:
    """Return the document in a text; errors call it `name`.

    Raises:
        SpecError: the text is not YAML 1.2, is more than plain data, is too large, or not a
            mapping.
    """
    reader = Reader(name)
    data = reader.read(text)
    if not isinstance(data, dict):
        problem = "is empty" if data is None else f"is {shown(data)}"
        fix = "a spec is a mapping (name: ..., metric: ..., parameters: ...)"
        raise fail(f"{problem}", fix=fix, place=f"{name}:1:1")
    return Document(data, name, reader.keys, reader.values)


def read_value(text: str) -> object:
    """Return a value from a line of YAML: `1e-3`, `[1, 2]`, `{min: 0, max: 1}`, a word."""
    return Reader("value").read(text)


def from_mapping(mapping: Mapping[str, object]) -> Document:
    """Return the document in a Python mapping.

    Raises:
        SpecError: the mapping holds more than plain data.
    """
    document = Document({})
    try:
        data = {key: plain(value, key) for key, value in _text_keys(mapping, ())}
    except SpecError as error:
        raise error.at(document.name) from error
    return replace(document, data=data)


def to_yaml(data: Mapping[str, object]) -> str:
    """Return JSON data as YAML, with its keys in their order."""
    yaml, text = YAML(typ="safe", pure=True), StringIO()
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.dump(json.loads(json.dumps(data)), text)
    return text.getvalue()


def plain(value: object, *path: str | int) -> object:
    """Return a copy of `value` as plain data: tuples become lists, numpy's numbers Python's.

    Raises:
        SpecError: `value` holds a Python object or a number that is not finite, or is too deep or
            too large.
    """
    return _plain(value, path, iter(range(MAX_VALUES)))


def _plain(value: object, path: KeyPath, left: Iterator[int]) -> object:
    if next(left, None) is None or len(path) > MAX_DEPTH:
        message = f"nests deeper than {MAX_DEPTH} levels, or holds more than {MAX_VALUES:,} values"
        raise fail(message, *path[:1])
    if path[:1] == ("parameters",) and len(path) > 1 and all(isinstance(key, str) for key in path):
        value = declared(value, *path)
    match value:
        case None | bool():
            return value
        case str() | PurePath():
            return str(value)
        case Integral():
            return _sized(int(value), path)
        case Real():
            return _sized(float(value), path)
        case Mapping():
            items = _text_keys(value, path)
            return {key: _plain(item, (*path, key), left) for key, item in items}
        case list() | tuple():
            return [_plain(item, (*path, index), left) for index, item in enumerate(value)]
    raise fail(object_message(value, path), *path)


def _sized(number: float, path: KeyPath) -> float:
    try:
        return check_size(number)
    except ValueError as error:
        raise fail(error, *path) from error


def _text_keys(mapping: Mapping[str, object], path: KeyPath) -> Iterator[tuple[str, object]]:
    for key, value in mapping.items():
        if not isinstance(key, str):
            raise fail(f"the key {key!r} is no text", *path, fix=f"write {str(key)!r}")
        yield str(key), value
