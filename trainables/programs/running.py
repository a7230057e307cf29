"""The run of a command's program, from its start to its end.

Threads put events into a queue: metrics on the output, reports over the socket, the program's end.
The order's thread takes the events from the queue, reports to the sweep, and makes sure that the
program ends.
"""

import queue
import re
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from trainables.errors import SUMMARY, is_disk_full, is_storage_fault
from trainables.metrics import MOST_SHOWN, NoNumber
from trainables.programs.exit_causes import CommandDiskFull, CommandFailed, CommandLost, failure
from trainables.programs.output_metrics import LONGEST, Collector, UnreadableMetric
from trainables.programs.process import TAIL_CHARACTERS, CannotStart, Ended, Process
from trainables.programs.report_socket import ProcessLeft, ProcessReport
from trainables.programs.server import COST, TOKENS, RunningServer, with_cost
from trainables.programs.snapshots import CannotCopy, Snapshots
from trainables.report_hints import imported_by, report_hint
from trainables.stop_signals import Preempted, StopTrial
from trainables.worker import ReportError, Worker

LEAVE_S = 2.0  # for a program to exit by itself after it was told to stop or did its last step
MARGIN = 0.9  # part of the grace period to use, so that the slot is not killed for its program
POLL_S = 0.05  # between checks of the other ranks
NOTICE_S = 1.0  # between checks whether this process is to end soon, if nothing else happens


class Peers(Protocol):
    """The other ranks of an order, as seen by this one; with a world of one there are none."""

    def decisions(self) -> list[tuple[int, bool]]:
        """Return the steps that rank 0 has reported since the last call, and whether to go on."""
        ...

    def over(self) -> bool:
        """Return whether rank 0 has ended, so that no more decisions follow."""
        ...

    def lose(self) -> None:
        """Tell the others that this rank's program failed."""
        ...

    def lost(self) -> bool:
        """Return whether another rank's program failed."""
        ...


@dataclass(frozen=True)
class _OutputMetrics:
    """Metrics found on standard output."""

    step: int
    metrics: Mapping[str, float | NoNumber]
    checkpoint: Path | None


_Event = _OutputMetrics | ProcessReport | ProcessLeft | Ended | UnreadableMetric | OSError


@dataclass
class ProgramRun:
    """A run of the program of a command."""

    collect: str | None  # a pattern on standard output; None: hposvc.report
    grace_s: float
    worker: Worker
    peers: Peers | None
    limited: tuple[str, ...] = ()  # metrics with a limit, for `collect` to wait for
    price: float | None = None  # of an hour of the server; None: there is none, or no price
    server: RunningServer | None = None  # that the program loads
    events: "queue.SimpleQueue[_Event]" = field(default_factory=queue.SimpleQueue)
    stopped: bool = False
    deadlines: list[tuple[float, Literal["terminate", "kill"]]] = field(default_factory=list)
    decisions: list[tuple[int, bool]] = field(default_factory=list)  # of rank 0, in order
    waiting: list[tuple[int, ProcessReport]] = field(default_factory=list)  # other ranks, by number
    counts: dict[int, int] = field(default_factory=dict)  # reports of the other ranks
    steps: dict[int, int] = field(default_factory=dict)  # their last steps
    processes_left: Counter[int] = field(
        default_factory=Counter
    )  # processes of rank 0, by their parent
    error: Exception | None = None
    lost: bool = False
    preemption: Preempted | None = None  # set if the order is preempted

    def go(
        self,
        program: Sequence[str],
        environment: Mapping[str, str],
        checkpoint_dir: Path,
        output: int,
    ) -> None:
        """Start the program, and handle its events until it has ended."""
        try:
            process = Process(program, environment, output)
        except CannotStart as error:
            raise CommandFailed(f"command: {program[0]} can't be started: {error}") from error
        try:
            reader = _Reader(self, process, checkpoint_dir)
            process.listen(reader.feed, self.events.put)
            code = self._serve(process, checkpoint_dir)
        finally:
            process.close()
        self._conclude(program, code, process.tails(), reader.names)

    def _serve(self, process: Process, checkpoint_dir: Path) -> int | None:
        snapshots = Snapshots(checkpoint_dir, self.worker)
        while True:
            self._check_peers()
            self._check_notice()
            if self.server is not None and self.server.ended.is_set() and not self.stopped:
                self._fail(self.server.fault(self.worker.checkpoints))
            self._keep_deadlines(process)
            with suppress(queue.Empty):
                match self.events.get(timeout=self._seconds_to_wait()):
                    case Ended(code):
                        return code
                    case UnreadableMetric() if self.worker.is_over:
                        pass  # a trial is not lost by what it prints after its last step
                    case UnreadableMetric() | OSError() as error:
                        self._fail(error)
                    case _OutputMetrics(step, metrics, checkpoint):
                        if not self._report(step, metrics, checkpoint):
                            self._stop(0)
                    case ProcessReport() as report:
                        self._handle_report(report, snapshots)
                    case ProcessLeft(0, parent):
                        self.processes_left[parent] += 1
                        self._answer_others()

    def _handle_report(self, report: ProcessReport, snapshots: Snapshots) -> None:
        if report.rank != 0 or self.worker.rank != 0:
            last = self.steps.get(report.rank, self.worker.first - 1)
            if report.step is not None and 0 < report.step <= last:
                report.answer(not self.stopped)  # rank 0's report of the step is left out as well
                return
            self.steps[report.rank] = last + 1 if report.step is None else report.step
            number = self.counts[report.rank] = self.counts.get(report.rank, 0) + 1
            self.waiting.append((number, report))
            self._answer_others()
            return
        if self.collect is not None:
            report.refuse(
                "report: the spec has `collect`, which finds the metrics; use one of them"
            )
            return
        step = self.worker.next_step if report.step is None else report.step
        try:
            folder = Path(report.checkpoint) if report.checkpoint else snapshots.take(step)
            others = {name: NoNumber(kind) for name, kind in report.no_numbers.items()}
            go_on = self._report(step, {**report.metrics, **others}, folder)
        except (ReportError, CannotCopy) as error:
            report.refuse(f"{error}")
            return
        report.answer(go_on)
        if not go_on:
            self._stop(LEAVE_S)

    def _report(
        self, step: int, metrics: Mapping[str, float | NoNumber], checkpoint: Path | None
    ) -> bool:
        """Report a step of rank 0, and return whether to go on."""
        worker = self.worker
        if self.stopped:
            return False
        go_on, reported = True, worker.reported
        try:
            worker.report(step, with_cost(metrics, self.price), checkpoint)
        except StopTrial as end:
            go_on = False
            self.preemption = end if isinstance(end, Preempted) else None
        except ReportError as error:
            if self.collect is None:
                raise
            self._fail(error)
            return False
        if worker.reported != reported:
            self.decisions.append((step, go_on))
            self._answer_others()
        # At the end of a rung the program must be stopped; after its last step it exits by itself.
        return go_on and not worker.pauses_at(step)

    def _answer_others(self) -> None:
        """Answer the reports of other ranks by rank 0's answer to the report of the same number."""
        unanswered = []
        for number, report in self.waiting:
            if self.stopped or self._reported_last_step() or number <= len(self.decisions):
                self._answer_as_rank_0(number, report)
            elif self._rank_0_has_left(report):
                text = "once more" if report.step is None else f"step {report.step}"
                report.refuse(
                    f"report: rank {report.rank} reports {text}, but rank 0 has ended without it; "
                    "every rank must report the same steps"
                )
            else:
                unanswered.append((number, report))
        self.waiting = unanswered

    def _rank_0_has_left(self, report: ProcessReport) -> bool:
        """Return whether no report of rank 0 can follow that belongs to this one.

        On one node, the process of rank 0 started by the same parent belongs to this one. A program
        may start its ranks anew, as for each epoch: then the next processes of the same parent
        belong together, or those of another parent.
        """
        if self.peers is not None and self.peers.over():
            return True
        return self.processes_left[report.parent] >= report.turn

    def _answer_as_rank_0(self, number: int, report: ProcessReport) -> None:
        step, go_on = self.decisions[number - 1] if number <= len(self.decisions) else (0, False)
        if go_on and report.step not in (None, step):
            report.refuse(
                f"report: rank {report.rank} reports step {report.step}, rank 0 step {step}"
            )
        else:
            report.answer(go_on and not self.worker.pauses_at(step))

    def _check_peers(self) -> None:
        if self.peers is None:
            return
        for decision in self.peers.decisions():
            self.decisions.append(decision)
            step, go_on = decision
            if not go_on or self.worker.pauses_at(step):
                self._stop(LEAVE_S if self.counts else 0)
        if not self.lost and not self.stopped and self.peers.lost():
            self.lost = True
            self._stop(0)
        self._answer_others()

    def _check_notice(self) -> None:
        if self.worker.notice.given and not (self.stopped or self._reported_last_step()):
            self.preemption = Preempted("its rank was told to end, and so was the command")
            if self.peers is not None:
                self.peers.lose()
            self._stop(0)

    def _stop(self, wait_s: float) -> None:
        """Stop the program: SIGTERM after a wait, then SIGKILL."""
        if not self.stopped:
            self.stopped = True
            now, grace_s = time.monotonic(), MARGIN * self.grace_s
            self.deadlines = [
                (now + min(wait_s, grace_s / 2), "terminate"),
                (now + grace_s, "kill"),
            ]
            self._answer_others()

    def _fail(self, error: Exception) -> None:
        self.error = self.error or error
        self._stop(0)

    def _keep_deadlines(self, process: Process) -> None:
        while self.deadlines and time.monotonic() >= self.deadlines[0][0]:
            _, verb = self.deadlines.pop(0)
            if verb == "terminate":
                process.terminate()
            else:
                process.kill()

    def _seconds_to_wait(self) -> float:
        now = time.monotonic()
        looks = NOTICE_S if self.peers is None else POLL_S
        return min([looks, *(max(0.0, at - now) for at, _ in self.deadlines)])

    def _conclude(
        self, program: Sequence[str], code: int | None, tails: tuple[str, str], names: Set[str]
    ) -> None:
        tail = "\n".join(filter(None, tails))
        self._check_peers()  # a stop of rank 0 may have reached the program before this process
        if self.error is not None:
            raise _with_tail(self.error, tail, self.worker.checkpoints)
        if self.preemption is not None:
            raise self.preemption
        if self.lost:
            raise CommandLost("ended, because the program of another rank had failed")
        if self.stopped or (code == -signal.SIGABRT and self._reported_last_step()):
            return  # gloo's threads can abort a Python process as it exits, after all work is done
        if code != 0:
            raise self._failure(program, code, tail)
        worker = self.worker
        # A trial resumed after its last report may have nothing left to do.
        expects_report = worker.until is not None or worker.first == 1
        if worker.rank == 0 and worker.reported is None and expects_report:
            cause = (
                f"no report came; {report_hint(imported_by(program))}"
                "call hposvc.report(metrics) in it, "
                "or give collect: {stdout: PATTERN}"
            )
            if self.collect is not None:
                cause = _describe_mismatch(re.compile(self.collect), worker.metrics, names, *tails)
            if worker.warning:
                cause = worker.warning
            failed = CommandFailed(_after(tail, f"the command ended without metrics: {cause}"))
            # A program that came to its end without an error will not report with other values.
            failed.sweep_wide = True
            raise failed

    def _failure(
        self, program: Sequence[str], code: int | None, tail: str
    ) -> CommandFailed | CommandLost:
        """Return the error for the program's end, or for that of the server that it loaded."""
        folder = self.worker.checkpoints
        if self.server is not None and self.server.is_dying():
            return self.server.fault(folder)
        return failure(code, tail, self.peers is not None, program[0], folder)

    def _reported_last_step(self) -> bool:
        return bool(self.decisions) and self.decisions[-1][0] == self.worker.until


def _describe_mismatch(
    pattern: re.Pattern[str], metrics: Sequence[str], names: Set[str], output: str, errors: str
) -> str:
    """Return why a pattern did not find the sweep's metrics.

    Args:
        names: of the metrics that it found.
        output: the end of standard output; `errors`: that of standard error.
    """
    if names:
        lacking = ", ".join(sorted({*metrics} - names))
        found = ", ".join(sorted(names)[:MOST_SHOWN])
        return f"collect.stdout found no {lacking}, which the sweep needs; it found {found}"
    on_errors = Collector(pattern, (*metrics,), lambda *_: None)
    with suppress(UnreadableMetric):
        on_errors.feed(f"{errors}\n".encode())
    if {*metrics} <= on_errors.names:
        return (
            "collect.stdout matched nothing there, but it matches stderr; send that to "
            'stdout: command: [sh, -c, "exec python train.py ${args} 2>&1"]'
        )
    if pattern.search(output):
        return "collect.stdout matches over several lines, and is tried on each line by itself"
    if len(output) >= TAIL_CHARACTERS and "\n" not in output:
        return f"collect.stdout matched nothing; of long lines, {LONGEST // 1024} KiB are searched"
    last = (output or errors).rstrip().rpartition("\n")[2].strip()[:200]
    printed = f"the last line was {last!r}" if last else "it printed nothing"
    return f"collect.stdout matched nothing; {printed}: correct the pattern"


def _with_tail(error: Exception, tail: str, folder: Path) -> CommandFailed | CommandLost:
    """Return an error met while the program ran, with its last output; a server's has its own."""
    if isinstance(error, CommandFailed | CommandLost):
        return error
    text = _after(tail, str(error))
    if is_storage_fault(error, folder):
        return CommandLost(text)
    return CommandDiskFull(text) if is_disk_full(error) else CommandFailed(text)


def _after(tail: str, message: str) -> str:
    """Put a message of one line after the output that led to it.

    Lists of trials show this line of the message, which would otherwise be the program's.
    """
    return f"{tail}\n{SUMMARY}{message}" if tail else message


@dataclass
class _Reader:
    """Find metrics in the output, and copy each step's checkpoint before the next step writes."""

    run: ProgramRun
    process: Process
    checkpoint_dir: Path

    def __post_init__(self) -> None:
        pattern, worker = self.run.collect, self.run.worker
        self.snapshots = Snapshots(self.checkpoint_dir, worker)
        self.next_step = worker.first
        self.collector: Collector | None = None
        if pattern is not None and worker.rank == 0:
            found = re.compile(pattern)
            metrics, limited = map(self._printed, (worker.metrics, self.run.limited))
            self.collector = Collector(found, metrics, self._found, limited)

    @property
    def names(self) -> Set[str]:
        """The names of the metrics found so far."""
        return self.collector.names if self.collector is not None else frozenset()

    def _printed(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the metrics to find, for those to report: a cost is computed from others."""
        computed = self.run.price is not None
        return tuple(TOKENS if name == COST and computed else name for name in names)

    def feed(self, chunk: bytes) -> None:
        """Take a piece of standard output."""
        if self.collector is not None:
            try:
                self.collector.feed(chunk)
            except (UnreadableMetric, OSError) as error:  # keep reading, or the program would stall
                self.collector = None
                self.run.events.put(error)

    def _found(self, printed_step: int | None, metrics: dict[str, float | NoNumber]) -> None:
        step = self.next_step if printed_step is None else printed_step
        self.next_step = max(self.next_step, step + 1)
        # The program must not write the next checkpoint while this one is copied.
        checkpoint = None
        if self.collector is not None and self.snapshots.due(step):
            with self.process.paused():
                checkpoint = self.snapshots.take(step, self.collector.seen_ns)
        self.run.events.put(_OutputMetrics(step, metrics, checkpoint))
