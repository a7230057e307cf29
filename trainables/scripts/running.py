"""One program of a command, from its start to its end.

Threads put what happens into a queue: metrics on its output, reports over its line, its end. One
thread, that of the order, takes it from there, reports, and sees to it that the program leaves.
"""

import queue
import re
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from trainables.checkpoints.room import out_of_room
from trainables.scripts.collecting import Collector, NoNumber
from trainables.scripts.endings import CommandFailed, CommandLost, CommandOutOfRoom, failure
from trainables.scripts.inbox import Left, Said
from trainables.scripts.process import CannotStart, Ended, Process
from trainables.scripts.snapshots import CannotCopy, Snapshots
from trainables.stopping import Preempted, StopTrial
from trainables.worker import ReportError, Worker

LEAVE_S = 2.0  # for a program to end by itself, once it was told or has done its last step
MARGIN = 0.9  # of the grace, so that ours is over before the slot is killed for it
POLL_S = 0.05  # between looks at what the other ranks do
NOTICE_S = 1.0  # between looks whether this process is to end soon, if nothing else happens


class Peers(Protocol):
    """What the other ranks of an order do; there are none where the world is of one."""

    def verdicts(self) -> list[tuple[int, bool]]:
        """The steps that rank 0 has reported since the last call, and whether to go on."""
        ...

    def over(self) -> bool:
        """Whether there will be no more of them, since rank 0 has ended."""
        ...

    def lose(self) -> None:
        """Tell the others that this rank's program failed."""
        ...

    def lost(self) -> bool:
        """Whether another rank's program failed."""
        ...


@dataclass(frozen=True)
class _Found:
    """Metrics on standard output."""

    step: int
    metrics: Mapping[str, float]
    checkpoint: Path | None


@dataclass
class Run:
    """One program, from its start to its end."""

    collect: str | None  # a pattern on standard output; None: hposvc.report
    grace_s: float
    worker: Worker
    peers: Peers | None
    limited: tuple[str, ...] = ()  # metrics with a limit, for `collect` to wait for
    happened: "queue.SimpleQueue[_Found | Said | Left | Ended | NoNumber | OSError]" = field(
        default_factory=queue.SimpleQueue
    )
    stopped: bool = False
    deadlines: list[tuple[float, Literal["terminate", "kill"]]] = field(default_factory=list)
    verdicts: list[tuple[int, bool]] = field(default_factory=list)  # of rank 0, in order
    waiting: list[tuple[int, Said]] = field(default_factory=list)  # other ranks, by number
    counts: dict[int, int] = field(default_factory=dict)  # reports of the other ranks
    left: Counter[int] = field(default_factory=Counter)  # processes of rank 0, by their parent
    error: Exception | None = None
    lost: bool = False
    taken: Preempted | None = None  # its place, before its time

    def go(self, program: Sequence[str], found: Mapping[str, str], given: Path) -> None:
        """Start it, and take what comes until it is over."""
        try:
            process = Process(program, found)
        except CannotStart as error:
            raise CommandFailed(f"command: {program[0]} can't be started: {error}") from error
        try:
            process.listen(_Reader(self, process, given).feed, self.happened.put)
            code = self._serve(process, given)
        finally:
            process.close()
        self._conclude(code, process.tail())

    def _serve(self, process: Process, given: Path) -> int | None:
        snapshots = Snapshots(given, self.worker)
        while True:
            self._look_at_peers()
            self._look_at_notice()
            self._keep_deadlines(process)
            with suppress(queue.Empty):
                match self.happened.get(timeout=self._patience()):
                    case Ended(code):
                        return code
                    case NoNumber() | OSError() as error:
                        self._fail(error)
                    case _Found(step, metrics, checkpoint):
                        if not self._report(step, metrics, checkpoint):
                            self._leave(0)
                    case Said() as said:
                        self._hear(said, snapshots)
                    case Left(0, parent):
                        self.left[parent] += 1
                        self._answer_others()

    def _hear(self, said: Said, snapshots: Snapshots) -> None:
        if said.rank != 0 or self.worker.rank != 0:
            number = self.counts[said.rank] = self.counts.get(said.rank, 0) + 1
            self.waiting.append((number, said))
            self._answer_others()
            return
        if self.collect is not None:
            said.refuse("report: the spec has `collect`, which finds the metrics; use one of them")
            return
        step = self.worker.next_step if said.step is None else said.step
        try:
            folder = Path(said.checkpoint) if said.checkpoint else snapshots.take(step)
            go_on = self._report(step, said.metrics, folder)
        except (ReportError, CannotCopy) as error:
            said.refuse(f"{error}")
            return
        said.answer(go_on)
        if not go_on:
            self._leave(LEAVE_S)

    def _report(self, step: int, metrics: Mapping[str, float], checkpoint: Path | None) -> bool:
        """Report a step of rank 0's; whether to go on."""
        worker = self.worker
        if self.stopped or worker.next_step > worker.until:
            return False
        go_on = True
        try:
            worker.report(step, metrics, checkpoint)
        except StopTrial as end:
            go_on = False
            self.taken = end if isinstance(end, Preempted) else None
        except ReportError as error:
            if self.collect is None:
                raise
            self._fail(error)
            return False
        self.verdicts.append((step, go_on))
        self._answer_others()
        # A rung ends here, which a program can't know; one at its whole end leaves by itself.
        return go_on and not worker.until == step < worker.total

    def _answer_others(self) -> None:
        """Ranks other than 0 get rank 0's answers, each report that of the same number."""
        still = []
        for number, said in self.waiting:
            if self.stopped or self._done() or number <= len(self.verdicts):
                self._answer_as_rank_0(number, said)
            elif self._rank_0_has_left(said):
                what = "once more" if said.step is None else f"step {said.step}"
                said.refuse(
                    f"report: rank {said.rank} reports {what}, but rank 0 has ended without it; "
                    "every rank must report the same steps"
                )
            else:
                still.append((number, said))
        self.waiting = still

    def _rank_0_has_left(self, said: Said) -> bool:
        """Whether no report of rank 0 can follow that would be this one's.

        On one node that is rank 0's process beside it. A program may start its ranks anew, as for
        each epoch: another pair, or the next pair of the same parent.
        """
        if self.peers is not None and self.peers.over():
            return True
        return self.left[said.parent] >= said.turn

    def _answer_as_rank_0(self, number: int, said: Said) -> None:
        step, go_on = self.verdicts[number - 1] if number <= len(self.verdicts) else (0, False)
        if go_on and said.step not in (None, step):
            said.refuse(f"report: rank {said.rank} reports step {said.step}, rank 0 step {step}")
        else:
            said.answer(go_on and not (step == self.worker.until < self.worker.total))

    def _look_at_peers(self) -> None:
        if self.peers is None:
            return
        for verdict in self.peers.verdicts():
            self.verdicts.append(verdict)
            step, go_on = verdict
            if not go_on or step == self.worker.until < self.worker.total:
                self._leave(LEAVE_S if self.counts else 0)
        if not self.lost and not self.stopped and self.peers.lost():
            self.lost = True
            self._leave(0)
        self._answer_others()

    def _look_at_notice(self) -> None:
        if self.worker.notice.given and not (self.stopped or self._done()):
            self.taken = Preempted("its rank was told to end, and so was the command")
            if self.peers is not None:
                self.peers.lose()
            self._leave(0)

    def _leave(self, wait_s: float) -> None:
        """See to it that the program ends: SIGTERM after a wait, then SIGKILL."""
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
        self._leave(0)

    def _keep_deadlines(self, process: Process) -> None:
        while self.deadlines and time.monotonic() >= self.deadlines[0][0]:
            _, verb = self.deadlines.pop(0)
            if verb == "terminate":
                process.terminate()
            else:
                process.kill()

    def _patience(self) -> float:
        now = time.monotonic()
        looks = NOTICE_S if self.peers is None else POLL_S
        return min([looks, *(max(0.0, at - now) for at, _ in self.deadlines)])

    def _conclude(self, code: int | None, tail: str) -> None:
        self._look_at_peers()  # a stop of rank 0 may have reached the program before us
        if self.error is not None:
            kind = CommandOutOfRoom if out_of_room(self.error) else CommandFailed
            raise kind(f"{self.error}\n{tail}")
        if self.taken is not None:
            raise self.taken
        if self.lost:
            raise CommandLost("ended, because the program of another rank had failed")
        if self.stopped or (code == -signal.SIGABRT and self._done()):
            return  # gloo's threads can abort a Python that leaves, after all work is done
        if code != 0:
            raise failure(code, tail, among_peers=self.peers is not None)
        if self.worker.rank == 0 and self.worker.reported is None:
            where = "collect.stdout matched nothing" if self.collect else "no report came"
            raise CommandFailed(
                f"the command ended without metrics: {where}; call hposvc.report(metrics) in it, "
                f"or give collect: {{stdout: PATTERN}}\n{tail}"
            )

    def _done(self) -> bool:
        return bool(self.verdicts) and self.verdicts[-1][0] == self.worker.until


@dataclass
class _Reader:
    """Finds metrics in the output, and takes the checkpoint while it is that step's."""

    run: Run
    process: Process
    given: Path

    def __post_init__(self) -> None:
        pattern, worker = self.run.collect, self.run.worker
        self.snapshots = Snapshots(self.given, worker)
        self.next_step = worker.first
        self.collector: Collector | None = None
        if pattern is not None and worker.rank == 0:
            self.collector = Collector(
                re.compile(pattern), worker.metrics, self._found, self.run.limited
            )

    def feed(self, chunk: bytes) -> None:
        """Take a piece of standard output."""
        if self.collector is not None:
            try:
                self.collector.feed(chunk)
            except (NoNumber, OSError) as error:  # the rest is still to be read, or it would stall
                self.collector = None
                self.run.happened.put(error)

    def _found(self, said: int | None, metrics: dict[str, float]) -> None:
        step = self.next_step if said is None else said
        self.next_step = step + 1
        # It must not go on to write the next one while this one is copied.
        checkpoint = None
        if self.collector is not None and self.snapshots.due(step):
            with self.process.held():
                checkpoint = self.snapshots.take(step, self.collector.seen_ns)
        self.run.happened.put(_Found(step, metrics, checkpoint))
