"""A rank of a slot: a process that runs the user's code on its main thread, order after order.

Ranks are equal. Those of a group meet at a store that rank 0 keeps open from order to order; each
order gets a process group of its own. `serve` does not return while the slot lives, so whoever
waits for it learns of the rank's death at once, idle or not.
"""

import gc
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainables import load
from trainables.checkpoints import environment
from trainables.checkpoints.checkpoint import Saved
from trainables.dataset import DataSet
from trainables.scripts.rendezvous import Berth, Seat, alone, held_port
from trainables.slots import hygiene
from trainables.slots.assignment import (
    Assignment,
    Company,
    Outcome,
    Place,
    carry_out,
    import_trainable,
    log_file,
)
from trainables.slots.capturing import captured
from trainables.slots.preemption import Watch
from trainables.slots.pulse import Pulse, Signs
from trainables.slots.redaction import redact_file
from trainables.slots.showing import shown
from trainables.slots.wire import (
    Beat,
    Call,
    Done,
    Hello,
    Keep,
    Leave,
    Line,
    Report,
    Uses,
    Warned,
    dial,
    own_host,
)
from trainables.stopping import Notice, Preempted
from trainables.worker import ReportError

if TYPE_CHECKING:
    from trainables.parallel.group import Meeting

GO, STOP, LEAVE, OVER = "go", "stop", "leave", "over"


class Rank:
    """One process of a slot."""

    def __init__(self, rank: int, place: Place) -> None:
        self._rank, self._place = rank, place
        sys.path[:0] = [folder for folder in place.path if folder not in sys.path]

    def serve(self, call: Call) -> None:
        """Carry out the leader's orders until it is gone."""
        place, rank = self._place, self._rank
        hygiene.adopt()
        own_log = place.folder / "logs" / "slots" / f"{Path(call.slot).name}-{rank}.log"
        if place.inherited is not None:
            place.inherited.take_over()
        os.environ.update({**place.variables, **place.secrets})
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(place.world_size), LOCAL_RANK="0")
        if place.command is None:
            environment.keep_freed()
            if place.gpu:
                os.environ.update(environment.missing(os.environ))
            import_trainable(place, own_log)
        line = Line(dial(call))
        meeting = self._meet(line, call.slot)
        gc.collect()
        gc.freeze()  # what imports left stays: to look through it again takes 0.1 s, now and then
        works = place.command is None
        pulse = Pulse(place.stall_s, lambda order: line.say(Beat(order)), works)
        with suppress(EOFError, OSError):  # the leader is gone
            if place.training.batched > 1:
                from trainables.batched.serving import serve

                serve(place, line, pulse, own_log)
            watch = Watch(lambda order: line.say(Warned(order)))
            while True:
                task = line.hear()
                log = log_file(place.folder, task.trial, task.order, rank)
                name = f"{call.slot}/rank-{rank}"
                signs = Signs()
                with (
                    watch.during(task.order),
                    captured(log),
                    shown(name, f"{task.trial}/order-{task.order}"),
                    pulse.during(task.order, signs),
                ):
                    outcome = self._carry_out(_Desk(line, task, signs, watch.notice), meeting)
                redact_file(log, place.secrets.values())
                line.say(Done(outcome))

    def _meet(self, line: Line, slot: str) -> "Meeting | None":
        """Say hello, and join the others if there are any."""
        world_size, gpu = self._place.world_size, self._place.gpu
        host = own_host(line.connection)
        if world_size == 1:
            line.say(Hello(slot, 0, (host, 0)))
            line.hear()
            return None
        from trainables.parallel.group import Meeting, talk_over

        talk_over(host)
        if self._rank == 0:
            meeting = Meeting.open(host, world_size, gpu)
            line.say(Hello(slot, 0, (host, meeting.port)))
            line.hear()
        else:
            line.say(Hello(slot, self._rank, None))
            master, port = line.hear()
            meeting = Meeting.join(master, port, self._rank, world_size, gpu)
        meeting.introduce(Berth.here(host))
        return meeting

    def _carry_out(self, desk: "_Desk", meeting: "Meeting | None") -> Outcome:
        place, rank, task, signs = self._place, self._rank, desk.task, desk.signs
        if meeting is None:
            with alone(own_host(desk.line.connection)) as seat:
                company = Company(seat, notice=desk.notice)
                return carry_out(place, task, 0, _Speaker(desk.line, task, signs), company)
        if rank > 0:
            company = self._company(desk, meeting, meeting.hear_port(task.order))
            return carry_out(place, task, rank, _Listener(meeting, task.order, signs), company)
        speaker = _Speaker(desk.line, task, signs, meeting)
        with held_port() as port:
            meeting.tell_port(task.order, port)
            try:
                company = self._company(desk, meeting, port)
                return carry_out(place, task, rank, speaker, company)
            finally:
                meeting.tell(task.order, speaker.number, OVER)  # nobody waits for a report any more

    def _company(self, desk: "_Desk", meeting: "Meeting", port: int) -> Company:
        seat, order = Seat(self._rank, meeting.berths, port), desk.task.order
        if self._place.command is not None:
            return Company(seat, peers=_Peers(meeting, order), notice=desk.notice)
        if load.training_of(self._place.training, desk.task.params).init == "none":
            return Company(seat, notice=desk.notice)
        return Company(seat, meeting.group(order), notice=desk.notice)


@dataclass(frozen=True)
class _Desk:
    """An order, and who says what of it."""

    line: Line
    task: Assignment
    signs: Signs
    notice: Notice


@dataclass
class _Speaker:
    """Rank 0's link: to the leader, and on to the other ranks."""

    line: Line
    task: Assignment
    signs: Signs
    meeting: "Meeting | None" = None
    number: int = 0  # of the next report

    def exchange(self, step: int, metrics: Mapping[str, float], checkpoint: Saved | None) -> bool:
        # The last report needs no answer: the order ends anyhow.
        answered = step < self.task.until or step in self.task.milestones
        self.signs.given = self.signs.waits = True
        self.line.say(Report(step, metrics, checkpoint, answered))
        heard = self.line.hear() if answered else True
        self.signs.waits = False
        verdict = LEAVE if isinstance(heard, Leave) else GO if heard else STOP
        if self.meeting is not None:
            self.meeting.tell(self.task.order, self.number, f"{step} {verdict}")
        self.number += 1
        if isinstance(heard, Leave):
            raise Preempted(heard.why)
        return verdict == GO

    def keep(self, saved: Saved) -> None:
        self.signs.given = True
        self.line.say(Keep(self.task.order, saved))

    def uses(self, data: tuple[DataSet, ...]) -> None:
        self.line.say(Uses(self.task.order, data))

    def beat(self) -> None:
        self.signs.beat()


@dataclass
class _Listener:
    """The link of the other ranks: they hear what rank 0 was told."""

    meeting: "Meeting"
    order: int
    signs: Signs
    number: int = 0

    def exchange(self, step: int, metrics: Mapping[str, float], checkpoint: Saved | None) -> bool:
        self.signs.given = True
        heard = self.meeting.hear(self.order, self.number)
        self.number += 1
        if heard == OVER:
            raise ReportError(
                f"rank {self.meeting.rank} reports step {step}, but rank 0 has ended without it; "
                "every rank must report the same steps"
            )
        theirs, verdict = heard.split()
        if int(theirs) != step:
            raise ReportError(
                f"rank {self.meeting.rank} reports step {step}, rank 0 step {theirs}; "
                "every rank must report the same steps"
            )
        if verdict == LEAVE:
            raise Preempted(f"rank 0 was told to leave at step {step}")
        return verdict == GO

    def keep(self, saved: Saved) -> None:
        """Rank 0's is the record."""

    def uses(self, data: tuple[DataSet, ...]) -> None:
        """Rank 0's word is the record."""

    def beat(self) -> None:
        self.signs.beat()


@dataclass
class _Peers:
    """The other ranks, as a program's rank follows them: it waits for none."""

    meeting: "Meeting"
    order: int
    number: int = 0  # of the report to be heard next
    ended: bool = False

    def verdicts(self) -> list[tuple[int, bool]]:
        found = []
        while self.meeting.rank > 0 and (heard := self.meeting.heard(self.order, self.number)):
            if heard == OVER:
                self.ended = True
                break
            self.number += 1
            step, verdict = heard.split()
            found.append((int(step), verdict == GO))
        return found

    def over(self) -> bool:
        return self.ended

    def lose(self) -> None:
        self.meeting.lose(self.order)

    def lost(self) -> bool:
        return self.meeting.lost(self.order)
