"""A reader of YAML 1.2 text into plain data, with the place of every key and value.

The text is not trusted: depth and the number of values (aliases counted at each use) are bounded
while reading; tags, merges and anything else beyond plain data are refused. ruamel.yaml composes
the nodes; scalars are read here, by the core schema of YAML 1.2 (section 10.3.2): `1e-5` is a
number; `on`, `12:30` and `1_000` are words.
"""

import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, StreamMark
from ruamel.yaml.events import AliasEvent, StreamEndEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from hposvc.errors import KeyPath, SpecError, fail, shorten, shown

MAX_DEPTH = 64
MAX_VALUES = 100_000
MAX_READ = 50_000  # values of a text, each of which takes 0.1 ms to read
MAX_DIGITS = 400  # in a number; the largest float has 309
LARGEST_FLOAT = sys.float_info.max

NULL = re.compile(r"~|null|Null|NULL|")
TRUE = re.compile(r"true|True|TRUE")
FALSE = re.compile(r"false|False|FALSE")
NUMBERS: tuple[tuple[re.Pattern[str], Callable[[str], float]], ...] = (
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
)
NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
BEYOND_UNICODE = re.compile(r"\\U(?!000|0010)[0-9a-fA-F]{8}")  # ruamel.yaml 0.19 trips over it

# Part of ruamel.yaml's message about a syntax error -> advice to the author.
HINTS = {
    "'\\t' that cannot start": "a tab; indent with spaces",
    "that cannot start any token": "a value cannot begin with this character; quote the text",
    "mapping values are not allowed": "a ': ' where none can be; put a space after the colon "
    "in the line above, quote a text that holds ': ', or align the keys of one mapping",
    "could not find expected ':'": "no ': ' after a key, here or in the line above; "
    "write key: value",
    "expected <block end>": "this does not fit the lines above; align the keys of one mapping "
    "and the dashes of one list, and match every bracket",
    "expected ',' or": "a comma, a closing bracket, or the space after a colon is missing, "
    "here or just above",
    "unexpected end of stream": "a quote was opened and is never closed",
    "expected the node content": "a value is missing, or brackets do not match",
    "expected alphabetic or numeric": "quote a text that begins with * or &",
    "<document start>": "the document is over and more text follows; match every bracket",
    "chomping": "quote a text that begins with | or >",
    "escape": "a backslash in a double-quoted text; use 'single quotes'",
    "tag": "a tag (!name); a spec is plain data, so quote a text that begins with !",
}


class Mark(NamedTuple):
    """A place in a text; line and column count from 1."""

    line: int
    column: int


class _Refused(MarkedYAMLError):
    """The text is YAML, but holds more than a spec may."""


class _Composer(Composer):
    """Composes the nodes of a document, and refuses what is more than plain data within bounds."""

    values = 0

    def compose_document(self) -> Any:
        version = self.parser.peek_event().version
        if version and tuple(version) != (1, 2):
            self._refuse("a spec is YAML 1.2; remove this line")
        self.warn_double_anchors = False
        root = super().compose_document()
        if not self.parser.check_event(StreamEndEvent):
            self._refuse("a second document begins; one file is one spec")
        return root

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.parser.peek_event()
        if isinstance(event, AliasEvent) and event.anchor not in self.anchors:
            self._refuse(f"*{event.anchor} has no &{event.anchor} above it")
        tag = getattr(event, "tag", None)
        if tag is not None:
            tag = str(tag).replace("tag:yaml.org,2002:", "!!")
            self._refuse(f"a tag ({shorten(tag)}); a spec is plain data without tags")
        is_key = isinstance(parent, MappingNode) and index is None
        if is_key and getattr(event, "value", None) == "<<":
            self._refuse("<< (merge) is not part of YAML 1.2; write the keys out")
        self.values += 1
        if problem := _excess(self.depth, self.values):
            self._refuse(problem)
        return super().compose_node(parent, index)

    def _refuse(self, message: str) -> NoReturn:
        raise _Refused(problem=message, problem_mark=self.parser.peek_event().start_mark)


def _excess(depth: int, values: int) -> str:
    """Return what is too much of a document at this point; empty: nothing."""
    if depth > MAX_DEPTH:
        return f"nests deeper than {MAX_DEPTH} levels"
    too_many = f"holds more than {MAX_READ:,} values (aliases count at each use)"
    return too_many if values > MAX_READ else ""


class Reader:
    """A reader of one text; `keys` and `values` hold the places of each path's key and value."""

    def __init__(self, name: str) -> None:
        self.name = name  # of the document, for errors
        self.keys: dict[KeyPath, Mark] = {}
        self.values: dict[KeyPath, Mark] = {}
        self._count = 0

    def read(self, text: str) -> object:
        """Return the plain data in the text.

        Raises:
            SpecError: the text is not YAML, or holds more than a spec may.
        """
        odd = NOT_TEXT.search(text)
        if odd:
            message = f"holds the character U+{ord(odd[0]):04X}; a spec is text"
            raise self._fail(message, mark_of(text, odd.start()))
        beyond = BEYOND_UNICODE.search(text)
        if beyond:
            raise self._fail(f"not YAML: {HINTS['escape']}", mark_of(text, beyond.start()))
        yaml = YAML(typ="safe", pure=True)
        yaml.Composer = _Composer
        try:
            node = yaml.compose(text)
        except _Refused as error:
            raise self._fail(f"{error.problem}", mark_at(error.problem_mark)) from error
        except MarkedYAMLError as error:
            raise self._syntax_error(error) from error
        return None if node is None else self._data(node, ())

    def _data(self, node: Node, path: KeyPath) -> object:
        """Return the node's data; the node of an alias is read, and counted, at each use."""
        mark = self.values[path] = mark_at(node.start_mark)
        self._count += 1
        if problem := _excess(len(path), self._count):
            raise self._fail(problem, mark)
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if isinstance(node, SequenceNode):
            return [self._data(item, (*path, index)) for index, item in enumerate(node.value)]
        assert isinstance(node, MappingNode)
        data: dict[str, object] = {}
        for key_node, value in node.value:
            key, mark = self._key(key_node, path), mark_at(key_node.start_mark)
            if key in data:
                first = self.keys[(*path, key)].line
                message = f"this key is in line {first} already; remove one of the two"
                raise self._fail(message, mark, *path, key)
            self.keys[(*path, key)] = mark
            data[key] = self._data(value, (*path, key))
        return data

    def _key(self, node: Node, path: KeyPath) -> str:
        mark = mark_at(node.start_mark)
        if not isinstance(node, ScalarNode):
            raise self._fail("a key is a list or a mapping; write a word", mark, *path)
        key = self._scalar(node, path)
        if not isinstance(key, str):
            message = f"the key {shown(key)} is no text; write '{shorten(node.value)}' in quotes"
            raise self._fail(message, mark, *path)
        return key

    def _scalar(self, node: ScalarNode, path: KeyPath) -> object:
        text, mark = str(node.value), mark_at(node.start_mark)
        if NOT_TEXT.search(text):
            raise self._fail("holds a control character; a spec is text", mark, *path)
        if node.style:  # quoted
            return text
        try:
            return core_value(text)
        except ValueError as error:
            raise self._fail(error, mark, *path) from error

    def _syntax_error(self, error: MarkedYAMLError) -> SpecError:
        problem = f"{error.problem}, {error.context}"
        hint = next((HINTS[piece] for piece in HINTS if piece in problem), problem)
        mark = error.problem_mark or error.context_mark
        if "unexpected end of stream" in problem and error.context_mark:
            mark = error.context_mark  # where the quote was opened
        return self._fail(f"not YAML: {hint}", mark_at(mark))

    def _fail(self, message: str | Exception, mark: Mark, *path: str | int) -> SpecError:
        return fail(message, *path, place=f"{self.name}:{mark.line}:{mark.column}")


def mark_of(text: str, offset: int) -> Mark:
    """Return the place of the character at `offset`."""
    return Mark(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))


def mark_at(mark: StreamMark) -> Mark:
    """Return a place as ruamel.yaml gives it, which counts from 0."""
    return Mark(mark.line + 1, mark.column + 1)


def core_value(text: str) -> object:
    """Return the value of a plain scalar by the core schema.

    Raises:
        ValueError: a number is not finite, or has more than MAX_DIGITS characters.
    """
    if NULL.fullmatch(text):
        return None
    if TRUE.fullmatch(text) or FALSE.fullmatch(text):
        return text[0] in "tT"
    for pattern, read in NUMBERS:
        if pattern.fullmatch(text):
            if len(text) > MAX_DIGITS:
                message = f"is a number of {len(text)} characters; give {MAX_DIGITS} at most"
                raise ValueError(message)
            return check_size(read(text))
    if NOT_FINITE.fullmatch(text):
        raise ValueError(f"is {text}; give a finite number")
    return text


def check_size(number: float) -> float:
    """Return the number, if it is finite and within the range of a float.

    Raises:
        ValueError: it is not.
    """
    if not -LARGEST_FLOAT <= number <= LARGEST_FLOAT:
        raise ValueError(f"is {shown(number)}; give a finite number, 1.8e308 at most")
    return number
