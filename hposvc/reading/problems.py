"""What is wrong with a document: each problem with the path at which it was found.

A path is a tuple of keys and list indices, `("parameters", "lr", "min")`. `SpecError` is the one
error that reading and checking a spec raises.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from searchers.names import nearest

Path = tuple[str | int, ...]
SHOWN = 20  # a longer list hides the first mistake from its reader
WIDTH = 60  # characters of a value in a message


@dataclass(frozen=True)
class Problem:
    """One mistake: where it is and, in a few words, what was found and what is allowed."""

    path: Path
    message: str
    at_key: bool = False  # the key itself is wrong: a position points at it, not at its value
    place: str = ""  # "sweep.yaml:7:14", "spec", "--set"; empty while the document is not known

    def under(self, *path: str | int) -> "Problem":
        """The same problem, seen from a document that holds this one at `path`."""
        return replace(self, path=(*path, *self.path))

    def __str__(self) -> str:
        where = dotted(self.path)
        if self.place == "--set":
            return f"--set {where}: {self.message}"
        return ": ".join(part for part in (self.place, where, self.message) if part)


class SpecError(ValueError):
    """What is wrong with a spec; its text is one line per problem."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def at(self, place: str) -> "SpecError":
        """The same problems, of a document whose places are not known one by one."""
        return SpecError(replace(problem, place=place) for problem in self.problems)

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"... and {len(self.problems) - SHOWN} more")
        return "\n".join(lines)


def fail(message: str, *path: str | int, place: str = "", at_key: bool = False) -> SpecError:
    """A SpecError of one problem."""
    return SpecError([Problem(path, message, at_key, place)])


def dotted(path: Sequence[str | int]) -> str:
    """`parameters.lr.min`, `initial[0].batch`: how people write a path."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else cut(part)
    return text


def no_such(kind: str, name: str, known: Iterable[str]) -> str:
    """`no such key; did you mean 'lr'?`, or the names there are when none is near."""
    return f"no such {kind}; {nearest(name, known)}"


def cut(text: str) -> str:
    """A text of one line that fits into a message."""
    text = text.replace("\n", "\\n")
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."


def shown(value: object) -> str:
    """A value as its author knows it from the document."""
    match value:
        case None:
            return "empty (null)"
        case bool():
            return str(value).lower()
        case str():
            return f"'{cut(value)}'"
        case dict():
            return "a mapping" if value else "an empty mapping"
        case list():
            return "a list" if value else "an empty list"
        case _:
            return cut(str(value))
