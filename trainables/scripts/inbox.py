"""Where the processes of a command report: a socket of this machine, one JSON object a line.

They find it by the variable HPOSVC_LINE, and show its token. See session.py for their end.
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

LINE = "HPOSVC_LINE"
LOOPBACK = "127.0.0.1"
POLL_S = 1.0


@dataclass
class Said:
    """One report of one process, which waits for the answer."""

    rank: int  # as its RANK says
    step: int | None
    metrics: Mapping[str, float]
    checkpoint: str | None  # a folder
    parent: int  # the id of the process that started this one
    turn: int  # which of this rank's processes it is of those from that parent, from 1
    _answers: "queue.SimpleQueue[Mapping[str, object]]" = field(default_factory=queue.SimpleQueue)

    def answer(self, go_on: bool) -> None:
        """Let it go on, or tell it to leave."""
        self._answers.put({"go": go_on})

    def refuse(self, message: str) -> None:
        """Let its report raise."""
        self._answers.put({"error": message})

    def wait(self) -> Mapping[str, object]:
        """What it was answered."""
        return self._answers.get()


@dataclass(frozen=True)
class Left:
    """A process that had reported is gone."""

    rank: int
    parent: int


class Inbox:
    """Takes reports.

    Args:
        hear: called with each, and with each process that leaves; from threads.
    """

    def __init__(self, hear: Callable[[Said | Left], None]) -> None:
        self._hear = hear
        self._token = secrets.token_hex(16)
        self._server = socket.create_server((LOOPBACK, 0), backlog=128)
        self._server.settimeout(POLL_S)
        self._closed = threading.Event()
        self._open: list[Said] = []
        self._turns: Counter[Left] = Counter()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, name="inbox", daemon=True).start()

    @property
    def variable(self) -> dict[str, str]:
        """What the environment of a command must hold."""
        return {LINE: f"{self._server.getsockname()[1]}:{self._token}"}

    def close(self) -> None:
        """Take no more; the processes are gone."""
        self._closed.set()
        for said in list(self._open):  # threads take theirs out meanwhile
            said.answer(False)

    def _accept(self) -> None:
        with self._server:
            while not self._closed.is_set():
                with suppress(TimeoutError):
                    line, _ = self._server.accept()
                    threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        line.settimeout(None)
        with line, line.makefile("rw", encoding="utf-8") as stream, suppress(OSError, ValueError):
            hello = stream.readline(256).strip().encode()
            if not hmac.compare_digest(hello, self._token.encode()):
                return
            if text := stream.readline():
                self._converse(stream, text)

    def _converse(self, stream: TextIO, text: str) -> None:
        """Answer a process from its first report until it leaves."""
        first = json.loads(text)
        own = Left(first["rank"], first["parent"])
        with self._lock:
            self._turns[own] += 1
            turn = self._turns[own]
        try:
            while text:
                stream.write(json.dumps(self._take(Said(**json.loads(text), turn=turn))) + "\n")
                stream.flush()
                text = stream.readline()
        finally:
            self._hear(own)

    def _take(self, said: Said) -> Mapping[str, object]:
        self._open.append(said)
        if self._closed.is_set():
            said.answer(False)
        else:
            self._hear(said)
        answer = said.wait()
        self._open.remove(said)
        return answer
