"""The socket at which the processes of a command report: one JSON object per line.

The processes find the socket by the variable HPOSVC_LINE, and send its token first. See session.py
for their end.
"""

import hmac
import json
import queue
import secrets
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TextIO

from trainables.listener import Known, Listener

LINE = "HPOSVC_LINE"
LOOPBACK = "127.0.0.1"


@dataclass
class ProcessReport:
    """A report of a process, which waits for the answer."""

    rank: int  # as its RANK says
    step: int | None
    metrics: Mapping[str, float]
    no_numbers: Mapping[str, str]  # what further values are, by the metric's name
    checkpoint: str | None  # a folder
    parent: int  # the id of the process that started this one
    turn: int  # counts, from 1, the processes of this rank started by that parent
    _answers: "queue.SimpleQueue[Mapping[str, object]]" = field(default_factory=queue.SimpleQueue)

    def answer(self, go_on: bool) -> None:
        """Tell the process to go on, or to stop."""
        self._answers.put({"go": go_on})

    def refuse(self, message: str) -> None:
        """Let the report raise an error in the process."""
        self._answers.put({"error": message})

    def wait(self) -> Mapping[str, object]:
        """Wait for the answer, and return it."""
        return self._answers.get()


@dataclass(frozen=True)
class ProcessLeft:
    """Notice that a process that had reported is gone."""

    rank: int
    parent: int


class ReportServer:
    """Server for the reports of a command's processes.

    Args:
        on_event: called, from threads, with each report and with each process that leaves.
    """

    def __init__(self, on_event: Callable[[ProcessReport | ProcessLeft], None]) -> None:
        self._on_event = on_event
        self._token = secrets.token_hex(16)
        self._closed = False
        self._open: list[ProcessReport] = []
        self._turns: Counter[ProcessLeft] = Counter()
        self._lock = threading.Lock()
        self._listener = Listener(LOOPBACK, "inbox", self._serve)

    @property
    def variable(self) -> dict[str, str]:
        """The variable that a command's environment must hold."""
        return {LINE: f"{self._listener.address[1]}:{self._token}"}

    def close(self) -> None:
        """Accept no more reports; the processes are gone."""
        self._closed = True
        self._listener.close()
        for report in list(self._open):  # a copy, as threads remove their reports meanwhile
            report.answer(False)

    def _serve(self, line: socket.socket, known: Known) -> None:
        with line.makefile("rw", encoding="utf-8") as stream, suppress(OSError, ValueError):
            hello = stream.readline(256).strip().encode()
            if not hmac.compare_digest(hello, self._token.encode()):
                return
            known()
            if text := stream.readline():
                self._serve_process(stream, text)

    def _serve_process(self, stream: TextIO, text: str) -> None:
        """Answer the reports of a process until it leaves."""
        first = json.loads(text)
        process = ProcessLeft(first["rank"], first["parent"])
        with self._lock:
            self._turns[process] += 1
            turn = self._turns[process]
        try:
            while text:
                stream.write(
                    json.dumps(self._answer(ProcessReport(**json.loads(text), turn=turn))) + "\n"
                )
                stream.flush()
                text = stream.readline()
        finally:
            self._on_event(process)

    def _answer(self, report: ProcessReport) -> Mapping[str, object]:
        self._open.append(report)
        if self._closed:
            report.answer(False)
        else:
            self._on_event(report)
        answer = report.wait()
        self._open.remove(report)
        return answer
