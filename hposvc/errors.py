"""Problems in a document, each with the path of the value that is wrong.

A path is a tuple of keys and list indices, `("parameters", "lr", "min")`. `SpecError` is the only
error raised by reading and checking a spec.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from searchers.names import nearest

Path = tuple[str | int, ...]
SHOWN = 20  # problems in a message; a longer list hides the first mistake from its reader
WIDTH = 60  # characters of a value in a message


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
