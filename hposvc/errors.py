"""Errors that a caller may meet, each with its exit code, and problems in a document.

A problem has the path of the value that is wrong, a tuple of keys and list indices such as
`("parameters", "lr", "min")`. `SpecError` is the only error raised by reading and checking a spec.
"""

import inspect
import os
import re
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

KeyPath = tuple[str | int, ...]
SHOWN = 20  # problems in a message; a longer list hides the first mistake from its reader
RESUME = "nothing is lost: mend it, and `hposvc resume` goes on"
BUILT_IN = ("searchers", "hposvc")  # packages of plug-ins
WIDTH = 60  # characters of a value in a message
PLACE = re.compile(r"(?P<file>.*):(?P<line>[0-9]+):(?P<column>[0-9]+)", re.DOTALL)
# Extras of the installation, each with packages that only it brings.
EXTRAS = {
    "mcp": ("mcp",),
    "mlflow": ("flask",),
    "plots": ("matplotlib", "resvg_py"),
    "tune": ("pyarrow",),
}
BUG, USAGE, NO_VALUE, NOT_FOUND, OUT_OF_REACH = 1, 2, 3, 4, 5  # exit codes
INTERRUPTED, TERMINATED = 130, 143  # those of a shell after SIGINT and SIGTERM


@dataclass(frozen=True)
class Problem:
    """A mistake: its path, in a few words what is wrong there, and what to do about it."""

    path: KeyPath
    message: str
    fix: str = ""  # empty: the message says all
    at_key: bool = False  # the key itself is wrong: a position points at it, not at its value
    place: str = ""  # "sweep.yaml:7:14", "spec", "--set"; empty while the document is not known

    @classmethod
    def of_text(cls, text: str, *path: str | int, at_key: bool = False) -> "Problem":
        """Return the problem in the text of a ValueError: `what is wrong; what to do`.

        The packages below, and plug-ins, can raise no problems of ours.
        """
        message, _, fix = text.partition("; ")
        return cls(path, message, fix, at_key)

    def under(self, *path: str | int) -> "Problem":
        """Return the problem as seen from a document that holds this document at `path`."""
        return replace(self, path=(*path, *self.path))

    def entry(self, code: str = "spec_error") -> dict[str, Any]:
        """Return the problem as JSON; see the function `entry`."""
        place = PLACE.fullmatch(self.place)
        return entry(
            code,
            f"{self}",
            fix=self.fix,
            file=place["file"] if place else self.place or None,
            line=int(place["line"]) if place else None,
            column=int(place["column"]) if place else None,
            key=dotted(self.path) or None,
        )

    @property
    def text(self) -> str:
        """The message and the fix, without the path."""
        return "; ".join(filter(None, (self.message, self.fix)))

    def __str__(self) -> str:
        path = dotted(self.path)
        if self.place == "--set":
            return f"--set {path}: {self.text}"
        return ": ".join(part for part in (self.place, path, self.text) if part)


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


class FixableError(Exception):
    """An error that is no mistake in a document; the text is `what is wrong; what to do`."""

    def __init__(self, message: str = "", fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix

    def __str__(self) -> str:
        return "; ".join(filter(None, (super().__str__(), self.fix)))


class NotFound(FixableError):
    """There is no such sweep, or no such trial of it."""

    exit_code = NOT_FOUND


class StoreError(FixableError):
    """The store is out of reach, or is no database that can hold a journal."""

    exit_code = OUT_OF_REACH


class Unanswered(StoreError):
    """The store does not answer now, but may answer if asked again in a moment."""


class DamagedJournal(StoreError):
    """The journal's database is damaged; `hposvc doctor` says what is whole."""


class EventsLost(StoreError):
    """The journal ends before events that were in it: an older copy was put in its place."""


class Unwritable(StoreError):
    """The home is not a folder that can be written."""

    exit_code = USAGE


class OutOfReach(FixableError):
    """The cluster can't be reached, or can never give what the spec asks for."""

    exit_code = OUT_OF_REACH


class Busy(FixableError):
    """Another driver is at work on the sweep."""

    exit_code = USAGE


class LeaseLost(Busy):
    """An order of a trial is not the agent's any more."""


class SweepOver(Busy):
    """A sweep has ended, and gives out no more trials."""


class Denied(FixableError):
    """The server does not know the caller's token, or does not let the caller do this."""

    exit_code = USAGE


class MissingExtra(FixableError):
    """A package is not installed that an extra of hposvc brings."""

    exit_code = USAGE


class Fenced(FixableError):
    """Another driver, or another recorder, wrote to the sweep."""

    exit_code = USAGE


class Interrupted(FixableError):
    """The driver got Ctrl-C or SIGTERM; the sweep can be resumed."""

    exit_code = INTERRUPTED


class Terminated(Interrupted):
    """The driver got SIGTERM; the sweep can be resumed."""

    exit_code = TERMINATED


class LeftRunning(FixableError):
    """The user left a sweep that goes on without this process."""

    exit_code = INTERRUPTED


def save_traceback(error: BaseException, home: Path | None) -> Path:
    """Write the traceback of a bug to a file in the home, and return the file.

    Args:
        home: None: HPOSVC_HOME, or ~/.hposvc.

    Raises:
        OSError: the file can't be written.
    """
    # Not by Home.of: that, or a module it imports, may be what is broken.
    chosen = home or os.environ.get("HPOSVC_HOME") or "~/.hposvc"
    folder = Path(chosen).expanduser() / "errors"
    folder.mkdir(exist_ok=True)  # a home that was deleted stays so
    file = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    with file.open("a") as log:  # a server may break twice in a second
        log.write("".join(traceback.format_exception(error)))
    return file


def require_extra(extra: str, user: str) -> None:
    """Check that the packages of an extra are installed.

    Args:
        extra: a key of EXTRAS.
        user: what needs it, as `engine: tune`.

    Raises:
        MissingExtra: some are not; the text says how to install them.
    """
    if packages := missing(extra):
        message = f"{user} needs {' and '.join(packages)}, not installed here"
        raise MissingExtra(message, f"pip install 'hposvc[{extra}]'")


def missing(extra: str) -> list[str]:
    """Return the packages of an extra that are not installed here."""
    return [package for package in EXTRAS[extra] if find_spec(package) is None]


def fail(
    message: str | Exception,
    *path: str | int,
    fix: str = "",
    place: str = "",
    at_key: bool = False,
) -> SpecError:
    """Return a SpecError with a single problem; the caller raises it.

    Args:
        message: or the error of a package below, whose text has the fix too.
    """
    if isinstance(message, Exception):
        problem = Problem.of_text(f"{message}", *path, at_key=at_key)
        return SpecError([replace(problem, place=place)])
    return SpecError([Problem(path, message, fix, at_key, place)])


def dotted(path: Sequence[str | int]) -> str:
    """Return a path as people write it: `parameters.lr.min`, `initial[0].batch`."""
    text = ""
    for part in path:
        dot = "." if text else ""
        text += f"[{part}]" if isinstance(part, int) else f"{dot}{shorten(part)}"
    return text


def entry(
    code: str,
    message: str,
    *,
    file: str | None = None,
    line: int | None = None,
    column: int | None = None,
    key: str | None = None,
    fix: str | None = None,
) -> dict[str, Any]:
    """Return an error as JSON, as a server answers it and the record of an operation has it."""
    values = {"code": code, "message": message, "file": file, "line": line, "column": column}
    values |= {"key": key, "fix": fix or None}
    # Half of a surrogate pair, which JSON can hold, can't be sent as UTF-8.
    return {
        name: value.encode(errors="replace").decode() if isinstance(value, str) else value
        for name, value in values.items()
    }


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


class PlugInFailed(FixableError):
    """A user's own plug-in raised, or gave a wrong answer; the message says what, and where."""

    exit_code = 2  # of the command line: bad usage


def is_built_in(plug_in: object) -> bool:
    """Return whether a plug-in is built in, so that its errors are bugs of hposvc."""
    return type(plug_in).__module__.partition(".")[0] in BUILT_IN


def plug_in_raised(name: str, plug_in: object, error: BaseException) -> PlugInFailed:
    """Return the error for what a plug-in raised.

    Args:
        name: the key of the spec and what it names, as `search.method my_module:Mine`.
    """
    return PlugInFailed(f"{name} raised {with_place(plug_in, error)}", RESUME)


def with_place(plug_in: object, error: BaseException) -> str:
    """Return the text of an error, and the last line of the plug-in's file that led to it."""
    file, _ = source_place(plug_in)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == file]
    frame = (own or frames)[-1]
    return f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"


def wrong_plug_in_answer(name: str, plug_in: object, problem: str) -> PlugInFailed:
    """Return the error for a plug-in's answer that breaks the rules.

    Args:
        problem: continues a sentence, as `suggests lr: is 50; ...`.
    """
    file, line = source_place(plug_in)
    place = f" ({file}:{line})" if file else ""
    return PlugInFailed(f"{name} {problem}{place}", RESUME)


def source_place(plug_in: object) -> tuple[str, int]:
    """Return the file and line of a plug-in's class, or function; empty and 0: it has no source."""
    source = plug_in if inspect.isfunction(plug_in) else type(plug_in)
    try:
        return inspect.getfile(source), inspect.getsourcelines(source)[1]
    except (OSError, TypeError):
        return "", 0
