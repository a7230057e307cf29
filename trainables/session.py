"""`report` and `get_checkpoint`, for user code that has no worker.

In a function called by a rank, they go to the rank's worker. In a script started by a command, or
in any child process of it, they go to the rank through the socket named by HPOSVC_LINE. In a
process outside any sweep, a report is printed on stderr and there is no checkpoint, so that code
written for a sweep also runs alone. Imports next to nothing.
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

from trainables.metrics import NoNumber, describe_left_out, number_of
from trainables.programs.report_socket import LINE, LOOPBACK
from trainables.stop_signals import StopTrial
from trainables.worker import ReportError

RESTORE = "HPOSVC_RESTORE_DIR"


class Session(Protocol):
    """The receiver of this process's reports."""

    def report(
        self, metrics: Mapping[str, Any], step: int | None, checkpoint: Path | None
    ) -> None: ...

    def get_checkpoint(self) -> Path | None: ...


class ScriptStopped(StopTrial, SystemExit):
    """StopTrial in a command's process; uncaught, it ends the process without a traceback."""

    code = 0


_session: Session | None = None  # a rank's in this process, or a script's after its first report
_reported = False


def report(
    metrics: Mapping[str, Any], step: int | None = None, checkpoint: Path | str | None = None
) -> None:
    """Send a step's metrics; on every rank, or on rank 0 alone if a command starts the ranks.

    Args:
        metrics: name to number; those of rank 0 are recorded. Metrics other than the sweep's that
            are no numbers are left out, with a warning. A trial is judged at the steps that have
            the sweep's metric.
        step: None: the step after the last report, or the first step of this order. The first
            report of a step stands: a later one, or one of an earlier step, is left out.
        checkpoint: a folder just written; it is copied.

    Raises:
        StopTrial: the trial ends here; do not catch it (`except Exception` does not).
        ReportError: the step, or the sweep's metric, breaks the rules.
    """
    global _reported
    _reported = True
    folder = None if checkpoint is None else Path(checkpoint)
    _current().report(metrics, step, folder)


def has_reported() -> bool:
    """Return whether this process has called `report`."""
    return _reported


def is_in_sweep() -> bool:
    """Return whether this process works for a trial, so that its reports are recorded."""
    return not isinstance(_current(), _NullSession)


def get_checkpoint() -> Path | None:
    """Return the checkpoint folder to resume from, read-only; None: start from scratch."""
    return _current().get_checkpoint()


@contextmanager
def use(session: Session) -> Iterator[None]:
    """Send the reports of this process to the session within the block."""
    global _session
    before, _session = _session, session
    try:
        yield
    finally:
        _session = before


def _current() -> Session:
    global _session
    if isinstance(_session, _SocketSession) and _session.pid != os.getpid():
        _session = None  # this process was forked: it must not use its parent's connection
    if _session is None:
        _session = _SocketSession(os.environ[LINE]) if LINE in os.environ else _NullSession()
    return _session


class _NullSession:
    """The session of a process outside any sweep: it prints reports."""

    def report(self, metrics: Mapping[str, Any], step: int | None, checkpoint: Path | None) -> None:
        named = "report" if step is None else f"step {step}"
        values, no_numbers = _plain(metrics)
        print(f"{named}: {values}", file=sys.stderr)  # noqa: T201 - printing is its purpose
        if no_numbers:
            print(f"left out: {describe_left_out(no_numbers)}", file=sys.stderr)  # noqa: T201

    def get_checkpoint(self) -> Path | None:
        return None


class _SocketSession:
    """The session of a command's process: it reports to the rank through a socket."""

    def __init__(self, where: str) -> None:
        self.pid = os.getpid()
        port, _, token = where.partition(":")
        self._line = socket.create_connection((LOOPBACK, int(port)))
        self._stream: TextIO = self._line.makefile("rw", encoding="utf-8")
        self._stream.write(f"{token}\n")
        self._stream.flush()  # callers that do not send their token soon are disconnected

    def report(self, metrics: Mapping[str, Any], step: int | None, checkpoint: Path | None) -> None:
        values, no_numbers = _plain(metrics)
        message = {
            "rank": int(os.environ.get("RANK", "0")),
            "step": None if step is None else _integer_step(step),
            "metrics": values,
            "no_numbers": no_numbers,
            "checkpoint": None if checkpoint is None else str(checkpoint.absolute()),
            "parent": os.getppid(),
        }
        answer = self._request(message)
        if "error" in answer:
            raise ReportError(answer["error"])
        if not answer["go"]:
            raise ScriptStopped("the trial was told to stop")

    def get_checkpoint(self) -> Path | None:
        return Path(os.environ[RESTORE]) if RESTORE in os.environ else None

    def _request(self, message: Mapping[str, object]) -> dict[str, Any]:
        try:
            self._stream.write(json.dumps(message) + "\n")
            self._stream.flush()
            text = self._stream.readline()
        except OSError:
            text = ""
        if not text:
            raise ScriptStopped("the rank that started this process is gone")
        answer: dict[str, Any] = json.loads(text)
        return answer


def _plain(metrics: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, str]]:
    """Return the numbers of a report, and what its other values are, both by name."""
    if not isinstance(metrics, Mapping):
        raise ReportError(f"metrics is {type(metrics).__name__}; give a dict of name: number")
    values: dict[str, float] = {}
    no_numbers: dict[str, str] = {}
    for name, value in metrics.items():
        number = number_of(value)
        if isinstance(number, NoNumber):
            no_numbers[f"{name}"] = number.found
        else:
            values[f"{name}"] = number
    return values, no_numbers


def _integer_step(step: Any) -> int:
    try:
        return operator.index(step)
    except TypeError as error:
        raise ReportError(f"step is {step!r}; give a whole number") from error
