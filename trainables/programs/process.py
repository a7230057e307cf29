"""A program run by a guard: its output as it comes, its end, and signals to all its processes."""

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
from functools import partial
from pathlib import Path

import psutil

from trainables.errors import CODES, TRACEBACK, last_raised
from trainables.programs.launchers import without_torchrun_report

GUARD = Path(__file__).with_name("guard.py")
CHUNK = 2**16  # bytes
TAIL = 16 * 1024  # bytes of each output that are kept for a message; torchrun says a lot
TAIL_LINES, TAIL_CHARACTERS = 15, 4096  # that the message has of each
STOP_S = 1.0  # for a paused program to stand still; a process in a write may need a while
MOST_LEFT = 2**20  # bytes of output to read after the program's end: the most that a pipe can hold


class CannotStart(Exception):
    """The program does not exist, or can't be executed."""


@dataclass(frozen=True)
class Ended:
    """The end of a program and of all processes that it started."""

    code: int | None  # -N: by signal N; None: its guard was killed, so the code is unknown


class Process:
    """A running program and its guard.

    Args:
        output: a descriptor that takes what the program writes; or a function, for two threads.

    Raises:
        CannotStart: with the system's reason.
    """

    def __init__(
        self,
        program: Sequence[str],
        environment: Mapping[str, str],
        output: int | Callable[[bytes], None] = 2,
    ) -> None:
        self._copy = partial(write_out, output) if isinstance(output, int) else output
        self._line, theirs = socket.socketpair()
        outputs = [os.pipe(), os.pipe()]
        try:
            # -I and -S: settings for the program's Python must not affect the guard's.
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
        self._waiting_thread: threading.Thread | None = None
        self._messages = self._line.makefile("r", encoding="utf-8", errors="replace")
        self._tails: tuple[deque[bytes], deque[bytes]] = deque(), deque()
        self._outputs = outputs[0][0], outputs[1][0]
        word, _, rest = self._messages.readline().strip().partition(" ")
        if word != "pid":
            self.close()
            raise CannotStart(rest or "its guard did not start")
        self._pid = int(rest)

    def listen(self, heard: Callable[[bytes], None], ended: Callable[[Ended], None]) -> None:
        """Pass on the program's output and its end; both callbacks are called from threads.

        Args:
            heard: called with each piece of standard output; with b"" at the end.
            ended: called once, when all output was passed on and no process is left.
        """
        over = os.pipe()
        readers = [
            threading.Thread(target=self._read, args=(over[0], *arguments), daemon=True)
            for arguments in zip(self._outputs, self._tails, (heard, None), strict=True)
        ]
        arguments = (readers, over, ended)
        self._waiting_thread = threading.Thread(target=self._await, args=arguments, daemon=True)
        for thread in (*readers, self._waiting_thread):
            thread.start()

    def terminate(self) -> None:
        """Send SIGTERM to the program's process group."""
        self._tell(b"T")

    def kill(self) -> None:
        """Send SIGKILL to the program and all processes that it started."""
        self._tell(b"K")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend the program and all processes that it started, within the context."""
        processes: list[psutil.Process] = []
        try:
            with suppress(psutil.Error):  # the program has ended
                program = psutil.Process(self._pid)
                processes = [program, *program.children(recursive=True)]
            for process in processes:
                with suppress(psutil.Error):
                    process.suspend()
            # The signal takes a while to reach a process running on another processor.
            deadline = time.monotonic() + STOP_S
            while any(map(_is_running, processes)) and time.monotonic() < deadline:
                time.sleep(0.0005)
            yield
        finally:
            for process in processes:
                with suppress(psutil.Error):
                    process.resume()

    def tails(self) -> tuple[str, str]:
        """Return the last lines of standard output, and those of standard error."""
        output, errors = map(_last_lines, self._tails)
        return output, errors

    def recent(self) -> str:
        """Return the last 16 KiB of both outputs, or more."""
        return "\n".join(b"".join(tail).decode(errors="replace") for tail in self._tails)

    def close(self) -> None:
        """Kill all processes still running, and wait for the guard to exit."""
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        self._guard.wait()
        if self._waiting_thread is None:
            for output in self._outputs:
                os.close(output)
        else:
            self._waiting_thread.join()
        self._messages.close()
        self._line.close()

    def _tell(self, word: bytes) -> None:
        with suppress(OSError):  # the guard is gone, and all processes with it
            self._line.sendall(word)

    def _read(
        self, over: int, source: int, tail: deque[bytes], heard: Callable[[bytes], None] | None
    ) -> None:
        with open(source, "rb", buffering=0):
            for chunk in _pieces(source, over):
                self._copy(chunk)
                _append(tail, chunk)
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
            word, _, code = self._messages.readline().strip().partition(" ")
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
    """Yield the content of a pipe until its end, or until the program's end.

    A descendant that may not be killed can hold the pipe for ever, and write to it. After the
    program's end, at most the content of the pipe is left of the program's own output.

    Args:
        over: becomes readable once the program has ended.
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


def _append(tail: deque[bytes], chunk: bytes) -> None:
    tail.append(chunk[-TAIL:])
    while sum(map(len, tail)) - len(tail[0]) >= TAIL:
        tail.popleft()


def _last_lines(tail: deque[bytes]) -> str:
    text = b"".join(tail)[-TAIL:].decode(errors="replace")
    lines = without_torchrun_report(CODES.sub("", text).replace("\r", "\n")).strip().splitlines()
    last = "\n".join(lines[-TAIL_LINES:])[-TAIL_CHARACTERS:]
    found = last_raised(lines)
    if found is None or TRACEBACK in last:
        return last
    start, end = found  # a summary follows, as W&B's, which would hide the error
    frames = [lines[start], "  ...", *lines[max(start + 1, end - TAIL_LINES) : end + 1], "..."]
    return "\n".join(frames)[-TAIL_CHARACTERS:] + f"\n{last}"


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def write_out(output: int, chunk: bytes) -> None:
    """Write bytes to a descriptor, if anybody reads."""
    while chunk:
        try:
            chunk = chunk[os.write(output, chunk) :]
        except BlockingIOError:
            select.select([], [output], [])
        except OSError:
            return  # nobody reads: go on all the same, as the program's metrics are still needed
