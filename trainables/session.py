"""`report` and `get_checkpoint`, for code that is given no worker.

In a function that a rank calls, they reach the rank's worker. In a script that a command starts,
or in any process of it, they reach the rank over the line named by HPOSVC_LINE. In a process that
is part of no sweep, a report is a line on stderr and there is no checkpoint, so that what people
write for a sweep runs by itself as well. Imports next to nothing.
"""

import json
import operator
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TextIO

from trainables.scripts.inbox import LINE, LOOPBACK
from trainables.stopping import StopTrial
from trainables.worker import ReportError

RESTORE = "HPOSVC_RESTORE_DIR"


class Session(Protocol):
    """Whom a report of this process reaches."""

    def report(
        self, metrics: Mapping[str, float], step: int | None, checkpoint: Path | None
    ) -> None: ...

    def get_checkpoint(self) -> Path | None: ...


class Leave(StopTrial, SystemExit):
    """StopTrial in a process of a command: uncaught, it ends the process without a traceback."""

    code = 0


_session: Session | None = None  # of the rank in this process, or of a script once it reported


def report(
    metrics: Mapping[str, float], step: int | None = None, checkpoint: Path | str | None = None
) -> None:
    """Send a step's metrics; on every rank, or on rank 0 alone where a command starts the ranks.

    Args:
        metrics: name to number, the sweep's metric among them; rank 0's are the record.
        step: None: the one after the last, counted from where this order begins.
        checkpoint: a folder just written; it is copied.

    Raises:
        StopTrial: the trial ends here; let it pass. `except Exception` does.
        ReportError: the step or a metric breaks the rules.
    """
    folder = None if checkpoint is None else Path(checkpoint)
    _current().report(metrics, step, folder)


def get_checkpoint() -> Path | None:
    """The folder to go on from, not to be written to; None: start from scratch."""
    return _current().get_checkpoint()


@contextmanager
def use(session: Session) -> Iterator[None]:
    """Let reports of this process reach the session."""
    global _session
    before, _session = _session, session
    try:
        yield
    finally:
        _session = before


def _current() -> Session:
    global _session
    if isinstance(_session, _Script) and _session.pid != os.getpid():
        _session = None  # a fork: its parent's line is not its own
    if _session is None:
        _session = _Script(os.environ[LINE]) if LINE in os.environ else _Nobody()
    return _session


class _Nobody:
    """There is no sweep."""

    def report(
        self, metrics: Mapping[str, float], step: int | None, checkpoint: Path | None
    ) -> None:
        named = "report" if step is None else f"step {step}"
        print(f"{named}: {_plain(metrics)}", file=sys.stderr)  # noqa: T201 - that is what it does

    def get_checkpoint(self) -> Path | None:
        return None


class _Script:
    """A process of a command."""

    def __init__(self, where: str) -> None:
        self.pid = os.getpid()
        port, _, token = where.partition(":")
        self._line = socket.create_connection((LOOPBACK, int(port)))
        self._stream: TextIO = self._line.makefile("rw", encoding="utf-8")
        self._stream.write(f"{token}\n")

    def report(
        self, metrics: Mapping[str, float], step: int | None, checkpoint: Path | None
    ) -> None:
        message = {
            "rank": int(os.environ.get("RANK", "0")),
            "step": None if step is None else _whole(step),
            "metrics": _plain(metrics),
            "checkpoint": None if checkpoint is None else str(checkpoint.absolute()),
            "parent": os.getppid(),
        }
        answer = self._ask(message)
        if "error" in answer:
            raise ReportError(answer["error"])
        if not answer["go"]:
            raise Leave("the trial was told to stop")

    def get_checkpoint(self) -> Path | None:
        return Path(os.environ[RESTORE]) if RESTORE in os.environ else None

    def _ask(self, message: Mapping[str, object]) -> dict[str, Any]:
        try:
            self._stream.write(json.dumps(message) + "\n")
            self._stream.flush()
            text = self._stream.readline()
        except OSError:
            text = ""
        if not text:
            raise Leave("whoever started this process is gone")
        answer: dict[str, Any] = json.loads(text)
        return answer


def _plain(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of numpy and torch as Python's; what is none is refused where it arrives."""
    if not isinstance(metrics, Mapping):
        raise ReportError(f"metrics is {type(metrics).__name__}; give a dict of name: number")
    return {f"{name}": _number(f"{name}", value) for name, value in metrics.items()}


def _whole(step: Any) -> int:
    try:
        return operator.index(step)
    except TypeError as error:
        raise ReportError(f"step is {step!r}; give a whole number") from error


def _number(name: str, value: Any) -> object:
    item = getattr(value, "item", None)
    if callable(item):
        try:
            value = item()
        except (TypeError, ValueError, RuntimeError) as error:
            raise ReportError(f"metric {name!r} holds several numbers; give one") from error
    if value is None or isinstance(value, str | int | float):
        return value
    raise ReportError(f"metric {name!r} is of type {type(value).__name__}; give a real number")
