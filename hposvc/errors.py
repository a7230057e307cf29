"""Errors that a caller may meet, each with its exit code, and problems in a document.

A problem has the path of the value that is wrong, a tuple of keys and list indices such as
`("parameters", "lr", "min")`. `SpecError` is the only error raised by reading and checking a spec.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from searchers.names import nearest

Path = tuple[str | int, ...]
SHOWN = 20  # problems in a message; a longer list hides the first mistake from its reader
WIDTH = 60  # characters of a value in a message
BUG, USAGE, NO_VALUE, NOT_FOUND, OUT_OF_REACH, INTERRUPTED = 1, 2, 3, 4, 5, 130  # exit codes


@dataclass(frozen=True)
class Problem:
    """A mistake: its path and, in a few words, the value and what is allowed instead."""

    path: Path
    message: str
    at_key: bool = False  # the key itself is wrong: a position points at it, not at its value
    place: str = ""  # "sweep.yaml:7:14", "spec", "--set"; empty while the document is not known

    def under(self, *path: str | int) -> "Problem":
        """Return the problem as seen from a document that holds this document at `path`."""
        return replace(self, path=(*path, *self.path))

    def __str__(self) -> str:
        path = dotted(self.path)
        if self.place == "--set":
            return f"--set {path}: {self.message}"
        return ": ".join(part for part in (self.place, path, self.message) if part)


class SpecError(ValueError):
    """The problems of a spec; the text has a line for each of them."""

    exit_code = USAGE

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def at(self, place: str) -> "SpecError":
        """Return the problems with `place` as the document of them all."""
        return SpecError(replace(problem, place=place) for problem in self.problems)

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"... and {len(self.problems) - SHOWN} more")
        return "\n".join(lines)


class NotFound(Exception):
    """There is no such sweep, or no such trial of it."""

    exit_code = NOT_FOUND


class StoreError(Exception):
    """The store is out of reach, or is no database that can hold a journal."""

    exit_code = OUT_OF_REACH


class Unanswered(StoreError):
    """The store does not answer now, but may answer if asked again in a moment."""


class Unwritable(StoreError):
    """The home is not a folder that can be written."""

    exit_code = USAGE


class OutOfReach(Exception):
    """The cluster can't be reached, or can never give what the spec asks for."""

    exit_code = OUT_OF_REACH


class Busy(Exception):
    """Another driver is at work on the sweep."""

    exit_code = USAGE


class Fenced(Exception):
    """Another driver, or another recorder, wrote to the sweep."""

    exit_code = USAGE


class Interrupted(Exception):
    """The driver got Ctrl-C or SIGTERM; the sweep can be resumed."""

    exit_code = INTERRUPTED


def fail(message: str, *path: str | int, place: str = "", at_key: bool = False) -> SpecError:
    """Return a SpecError with a single problem; the caller raises it."""
    return SpecError([Problem(path, message, at_key, place)])


def dotted(path: Sequence[str | int]) -> str:
    """Return a path as people write it: `parameters.lr.min`, `initial[0].batch`."""
    text = ""
    for part in path:
        dot = "." if text else ""
        text += f"[{part}]" if isinstance(part, int) else f"{dot}{shorten(part)}"
    return text


def no_such(kind: str, name: str, known: Iterable[str]) -> str:
    """Return `no such key; did you mean 'lr'?`, or all names if none is near."""
    return f"no such {kind}; {nearest(name, known)}"


def called_now(name: str) -> str:
    """Return the message about a key by the name that it had in earlier versions."""
    return f"is called {name} now; rename it"


def shorten(text: str) -> str:
    """Return the text on a single line, shortened to `WIDTH` characters."""
    text = text.replace("\n", "\\n")
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."


def shown(value: object) -> str:
    """Return a value as its author wrote it in the document, shortened."""
    match value:
        case None:
            return "empty (null)"
        case bool():
            return str(value).lower()
        case str():
            return f"'{shorten(value)}'"
        case dict():
            return "a mapping" if value else "an empty mapping"
        case list():
            return "a list" if value else "an empty list"
        case _:
            return shorten(str(value))
