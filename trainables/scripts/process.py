"""A program under guard: its output as it comes, its end, and signals to all of it."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

GUARD = Path(__file__).with_name("guard.py")
CHUNK = 2**16  # bytes
TAIL = 4096  # bytes of either output that are kept for a message
TAIL_LINES = 15
STOP_S = 1.0  # for a held program to stand still; one in the middle of a write may need a while
MOST_LEFT = 2**20  # bytes of output that are read after the end: the most that a pipe can hold


class CannotStart(Exception):
    """The program is not there, or can't be executed."""


@dataclass(frozen=True)
class Ended:
    """The program is over, and so is all that it started."""

    code: int | None  # -N: by signal N; None: its guard was killed, which says nothing of it


class Process:
    """A running program and its guard.

    Raises:
        CannotStart: with the system's reason.
    """

    def __init__(self, program: Sequence[str], environment: Mapping[str, str]) -> None:
        self._line, theirs = socket.socketpair()
        outputs = [os.pipe(), os.pipe()]
        try:
            # -I and -S: what is meant for the program's Python is not for the guard's.
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARD), str(theirs.fileno()), *program],
                stdin=subprocess.DEVNULL,
                stdout=outputs[0][1],
                stderr=outputs[1][1],
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            for end in (*outputs[0], *outputs[1]):
                os.close(end)
            self._line.close()
            raise CannotStart(str(error)) from error
        finally:
            theirs.close()
        for _, end in outputs:
            os.close(end)
        self._waiting: threading.Thread | None = None
        self._said = self._line.makefile("r", encoding="utf-8", errors="replace")
        self._tails: tuple[deque[bytes], deque[bytes]] = deque(), deque()
        self._outputs = outputs[0][0], outputs[1][0]
        word, _, rest = self._said.readline().strip().partition(" ")
        if word != "pid":
            self.close()
            raise CannotStart(rest or "its guard did not start")
        self._pid = int(rest)

    def listen(self, heard: Callable[[bytes], None], ended: Callable[[Ended], None]) -> None:
        """Pass its output on, and take notice of its end; both from threads.

        Args:
            heard: called with each piece of its standard output; b"" at its end.
            ended: called once, when all output was heard and nothing is left.
        """
        over = os.pipe()
        readers = [
            threading.Thread(target=self._read, args=(over[0], *arguments), daemon=True)
            for arguments in zip(self._outputs, self._tails, (heard, None), strict=True)
        ]
        arguments = (readers, over, ended)
        self._waiting = threading.Thread(target=self._await, args=arguments, daemon=True)
        for thread in (*readers, self._waiting):
            thread.start()

    def terminate(self) -> None:
        """SIGTERM to its process group."""
        self._tell(b"T")

    def kill(self) -> None:
        """SIGKILL to it and all that it started."""
        self._tell(b"K")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within it, neither the program nor what it started runs."""
        held: list[psutil.Process] = []
        try:
            with suppress(psutil.Error):  # it is over
                found = psutil.Process(self._pid)
                held = [found, *found.children(recursive=True)]
            for each in held:
                with suppress(psutil.Error):
                    each.suspend()
            # The signal takes its time to reach one that runs on another processor.
            deadline = time.monotonic() + STOP_S
            while any(map(_runs, held)) and time.monotonic() < deadline:
                time.sleep(0.0005)
            yield
        finally:
            for each in held:
                with suppress(psutil.Error):
                    each.resume()

    def tail(self) -> str:
        """The last lines of its standard output, then those of its standard error."""
        return "\n".join(filter(None, (_last_lines(kept) for kept in self._tails)))

    def close(self) -> None:
        """Kill what still runs, and wait for the guard's end."""
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        self._guard.wait()
        if self._waiting is None:
            for output in self._outputs:
                os.close(output)
        else:
            self._waiting.join()
        self._said.close()
        self._line.close()

    def _tell(self, word: bytes) -> None:
        with suppress(OSError):  # the guard is gone, and all with it
            self._line.sendall(word)

    def _read(
        self, over: int, source: int, tail: deque[bytes], heard: Callable[[bytes], None] | None
    ) -> None:
        with open(source, "rb", buffering=0):
            for chunk in _pieces(source, over):
                _write(chunk)
                _keep(tail, chunk)
                if heard is not None:
                    heard(chunk)
        if heard is not None:
            heard(b"")

    def _await(
        self,
        readers: Sequence[threading.Thread],
        over: tuple[int, int],
        ended: Callable[[Ended], None],
    ) -> None:
        try:
            word, _, code = self._said.readline().strip().partition(" ")
        except (OSError, ValueError):
            word, code = "", ""
        if not word:  # the guard is gone, and the program with it
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
        os.close(over[1])
        for reader in readers:
            reader.join()
        os.close(over[0])
        ended(Ended(int(code) if word == "exit" else None))


def _pieces(source: int, over: int) -> Iterator[bytes]:
    """What comes out of a pipe until its end, or until the program's.

    One that may not be killed can hold the pipe for ever, and write to it. Of the program itself,
    no more than what is in the pipe can be left.

    Args:
        over: readable once the program is over.
    """
    poll = select.poll()  # select() takes no number above 1023
    poll.register(source, select.POLLIN)
    poll.register(over, select.POLLIN)
    left = MOST_LEFT
    while left > 0:
        ready = dict(poll.poll())
        chunk = os.read(source, CHUNK) if source in ready else b""
        if not chunk:
            return
        left -= len(chunk) if over in ready else 0
        yield chunk


def _keep(tail: deque[bytes], chunk: bytes) -> None:
    tail.append(chunk[-TAIL:])
    while sum(map(len, tail)) - len(tail[0]) >= TAIL:
        tail.popleft()


def _last_lines(tail: deque[bytes]) -> str:
    text = b"".join(tail)[-TAIL:].decode(errors="replace")
    return "\n".join(text.replace("\r", "\n").strip().splitlines()[-TAIL_LINES:])


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _write(chunk: bytes) -> None:
    """To the order's log, or to stderr in a process whose stdout is for data."""
    while chunk:
        try:
            chunk = chunk[os.write(2, chunk) :]
        except BlockingIOError:
            select.select([], [2], [])
        except OSError:
            return  # nobody reads: the program goes on, as its metrics are still wanted
