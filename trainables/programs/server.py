"""A server that a command loads: it stays between the trials of a slot, and starts anew if it must.

It starts with a slot's first trial, on a free port of this machine, and again for a trial with
another value of a parameter of `restart_on`, or after a trial that failed. A guard runs it, so that
neither the server nor what it started outlives the process that has the slot. What it prints while
a trial runs goes to the trial's log.
"""

import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError

from trainables.errors import OUT_OF_MEMORY, SUMMARY
from trainables.metrics import NoNumber
from trainables.programs.arguments import PORT, render
from trainables.programs.exit_causes import CommandFailed, CommandLost, CommandOutOfMemory, failure
from trainables.programs.process import CannotStart, Ended, Process, write_out
from trainables.programs.rendezvous import LOOPBACK
from trainables.stop_signals import Preempted
from trainables.worker import Params, Worker

TOKENS = "tokens_per_s"  # the metric by which a cost is computed
COST = "cost_per_million_tokens"
MARK = b"server: "
LOOK_S = 0.1  # between two questions whether the server is ready
ANSWER_S = 5.0  # for an answer, and then for the end of a server that gives none
LEAVE_S = 10.0  # for a server to end by itself
# How vLLM (0.11) and SGLang (0.5) say that too little memory is left for the cache.
NO_CACHE = re.compile(
    r"(?i)No available memory for the cache blocks|larger than the available KV cache memory"
    r"|increase --mem-fraction-static"
)
PORT_TAKEN = re.compile(r"(?i)address already in use")
# A proxy that the environment names is not for this machine's own ports.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# Returns the program for items, parameters and variables, and its environment.
Start = Callable[[Sequence[str], Params, Mapping[str, str]], tuple[list[str], dict[str, str]]]


class RunningServer:
    """A server that was started, on a port of its own and with these values of `restart_on`."""

    def __init__(self, server: "Server", start: Start, params: Params) -> None:
        self.port, self.values, self.ended = _free_port(), server.values(params), threading.Event()
        self.output: int | None = None  # the descriptor of a trial's log; None: no trial runs
        self._begins_line, self.writing = True, threading.Lock()
        self._end, self._was_ready = Ended(None), False
        (self._ready,) = render([server.ready], {}, {PORT: self.port})
        (self._name, *_), _ = program = start(server.items, params, {PORT: self.port})
        try:
            self._process = Process(*program, self._write)
        except CannotStart as error:
            raise CommandFailed(f"serve.command: {self._name} can't be started: {error}") from error
        self._process.listen(lambda chunk: None, self._note_end)

    def wait_until_ready(self, timeout_s: float, worker: Worker) -> None:
        """Wait for the server, with signs of life; see `Server.up`."""
        deadline = time.monotonic() + timeout_s
        while (refused := self.refusal()) and not self.ended.wait(LOOK_S):
            worker.beat()
            if worker.notice.given:
                raise Preempted("its rank was told to end, and so was the server")
            if time.monotonic() > deadline:
                late = f"the server was not ready within {timeout_s:g} s (serve.start_timeout)"
                raise CommandFailed(f"{self._tail()}\n{SUMMARY}{late}: {self._ready} {refused}")
        if self.ended.is_set():
            raise self.fault(worker.checkpoints)
        self._was_ready = True

    def refusal(self) -> str:
        """Return why the server is not ready, as text; empty: it is."""
        try:
            with DIRECT.open(self._ready, timeout=ANSWER_S):
                return "is gone" if self.ended.is_set() else ""
        except HTTPError as error:
            return f"answers {error.code}"
        except (OSError, HTTPException) as error:
            return f"does not answer: {error}"

    def is_dying(self) -> bool:
        """Return whether the server has ended, or ends soon as it answers no more."""
        return self.ended.is_set() or (bool(self.refusal()) and self.ended.wait(ANSWER_S))

    def fault(self, folder: Path) -> CommandFailed | CommandLost:
        """Return the error for the end of the server; see `failure`."""
        what = f"the server, {'under load' if self._was_ready else 'before it was ready'},"
        error = failure(self._end.code, self._tail(), False, self._name, folder, what)
        said = self._process.recent()
        if NO_CACHE.search(said) or OUT_OF_MEMORY.search(said):  # of one of its processes
            return CommandOutOfMemory(f"{error}")
        # Another process was given the port in the same moment.
        return CommandLost(f"{error}") if PORT_TAKEN.search(said) else error

    def close(self) -> None:
        """End the server and all that it started: SIGTERM first, then SIGKILL."""
        self._process.terminate()
        self.ended.wait(LEAVE_S)
        self._process.close()

    def _tail(self) -> str:
        return "\n".join(filter(None, self._process.tails()))

    def _write(self, chunk: bytes) -> None:
        with self.writing:
            if self.output is not None:
                lines = MARK.join(chunk.splitlines(keepends=True))
                write_out(self.output, MARK + lines if self._begins_line else lines)
            self._begins_line = chunk.endswith((b"\n", b"\r"))

    def _note_end(self, end: Ended) -> None:
        self._end = end
        self.ended.set()


@dataclass
class Server:
    """How to start a slot's server; and the one that runs."""

    items: Sequence[str]
    ready: str  # a URL; the server is ready once it answers with a status of 2xx
    restart_on: Sequence[str]  # parameters
    start_timeout_s: float
    running: RunningServer | None = field(default=None, init=False, repr=False, compare=False)

    @contextmanager
    def up(self, start: Start, worker: Worker, output: int) -> Iterator[RunningServer]:
        """Provide the server for a trial, ready; it ends with the block if that raises.

        Raises:
            CommandFailed: the server can't be started, ended, or was not ready in time.
            CommandLost: it was ended by somebody else.
            Preempted: this process is to end soon.
        """
        running, values = self.running, self.values(worker.params)
        if running is None or running.values != values or running.refusal():
            self.close()
            running = self.running = RunningServer(self, start, worker.params)
        running.output = output
        try:
            running.wait_until_ready(self.start_timeout_s, worker)
            yield running
        except BaseException:
            self.close()
            raise
        finally:
            with running.writing:  # or a number would be written to that is another file by then
                running.output = None

    def values(self, params: Params) -> Params:
        """Return the values with which a trial's server must have started."""
        return {name: params.get(name) for name in self.restart_on}

    def close(self) -> None:
        """End the server, if one runs."""
        if self.running is not None:
            self.running.close()
            self.running = None


def with_cost(
    metrics: Mapping[str, float | NoNumber], price: float | None
) -> Mapping[str, float | NoNumber]:
    """Return metrics with the cost of a million tokens, if they have tokens and an hour a price."""
    tokens = metrics.get(TOKENS)
    if price is None or tokens is None or COST in metrics:
        return metrics
    if isinstance(tokens, NoNumber) or not tokens > 0:
        return {**metrics, COST: NoNumber(f"unknown, as {TOKENS} is no number above 0")}
    return {**metrics, COST: price / (tokens * 3600 / 1e6)}


def _free_port() -> str:
    with closing(socket.socket()) as holder:
        holder.bind((LOOPBACK, 0))
        return f"{holder.getsockname()[1]}"
