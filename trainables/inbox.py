"""Where the processes of a command report: a socket of this machine, one JSON object a line.

They find it by the variable HPOSVC_LINE, and show its token. See session.py for their end.
"""

import hmac
import json
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

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


class Inbox:
    """Takes reports.

    Args:
        said: called with each, from a thread.
    """

    def __init__(self, said: Callable[[Said], None]) -> None:
        self._said = said
        self._token = secrets.token_hex(16)
        self._server = socket.create_server((LOOPBACK, 0), backlog=128)
        self._server.settimeout(POLL_S)
        self._closed = threading.Event()
        self._open: list[Said] = []
        threading.Thread(target=self._accept, name="inbox", daemon=True).start()

    @property
    def variable(self) -> dict[str, str]:
        """What the environment of a command must hold."""
        return {LINE: f"{self._server.getsockname()[1]}:{self._token}"}

    def close(self) -> None:
        """Take no more; the processes are gone."""
        self._closed.set()
        for said in self._open:
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
            while text := stream.readline():
                stream.write(json.dumps(self._hear(json.loads(text))) + "\n")
                stream.flush()

    def _hear(self, message: Mapping[str, Any]) -> Mapping[str, object]:
        said = Said(**message)
        self._open.append(said)
        if self._closed.is_set():
            said.answer(False)
        else:
            self._said(said)
        answer = said.wait()
        self._open.remove(said)
        return answer
