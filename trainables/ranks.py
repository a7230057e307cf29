"""A slot on Ray: a leader, and the equal ranks that carry out its orders.

The leader is an asynchronous actor without torch: it hands an order to the ranks, collects their
reports, passes decisions on. Each rank is an actor whose one call, `serve`, runs the user's code
on the main thread and only returns when the slot is closed: the driver watches that call, so the
death of a rank, idle or not, is seen at once.

Ranks of a group meet at a TCPStore that rank 0 keeps open from order to order; each order gets a
process group of its own, under a prefix of its own.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import ray

from trainables import load
from trainables.assignment import Assignment, Outcome, Place, captured, carry_out, log_file
from trainables.checkpoint import Saved
from trainables.worker import ReportError

if TYPE_CHECKING:
    from trainables.parallel.group import Meeting

GO, STOP, OVER = "go", "stop", "over"
GRACE_S = 5.0  # for the other ranks to come back after one failed
EPILOGUE_S = 0.02  # how long a last report waits for its order's end, to travel with it


class Ready(NamedTuple):
    """All ranks are up."""


class Reported(NamedTuple):
    """Rank 0's report."""

    order: int
    trial: str
    step: int
    metrics: Mapping[str, float]
    saved: Saved | None


class Finished(NamedTuple):
    """The order is over. `clean`: the ranks can take the next one."""

    order: int
    trial: str
    failure: Outcome | None
    clean: bool
    residues: tuple[str, ...]


Message = Ready | Reported | Finished


@dataclass
class _Current:
    """The order that the ranks have."""

    task: Assignment
    step: int = 0
    stop: bool = False
    waiting: asyncio.Future[bool] | None = None  # rank 0 at a milestone
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    over: bool = False

    def at_milestone(self, step: int) -> bool:
        return any(self.step < milestone <= step for milestone in self.task.milestones)


class Leader:
    """Runs orders one after the other on the ranks of its slot."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._tasks: list[asyncio.Queue[Assignment | None]] = [
            asyncio.Queue() for _ in range(world_size)
        ]
        self._out: asyncio.Queue[Message] = asyncio.Queue()
        self._present = 0
        self._current: _Current | None = None
        self._address = ("", 0)
        self._listening = asyncio.Event()

    async def carry_out(self, task: Assignment) -> list[Message]:
        """Hand an order to the ranks; what happened first."""
        self._current = _Current(task)
        for queue in self._tasks:
            queue.put_nowait(task)
        return await self.messages()

    async def messages(self) -> list[Message]:
        """What happened since the last call; waits for the first."""
        found = [await self._out.get()]
        current = self._current
        if current is not None and not current.over and current.step >= current.task.until:
            with suppress(TimeoutError):
                found.append(await asyncio.wait_for(self._out.get(), EPILOGUE_S))
        while not self._out.empty():
            found.append(self._out.get_nowait())
        return found

    async def decide(self, order: int, verdict: Literal["continue", "stop"]) -> None:
        """The controller's answer to a milestone; a `stop` may come at any time."""
        current = self._current
        if current is None or current.task.order != order:
            return
        current.stop = current.stop or verdict == "stop"
        if current.waiting is not None and not current.waiting.done():
            current.waiting.set_result(not current.stop)

    async def report(
        self, order: int, step: int, metrics: Mapping[str, float], saved: Saved | None
    ) -> bool:
        """Rank 0 reports; False tells it to stop."""
        current = self._current
        if current is None or current.task.order != order:
            return False
        waits = current.at_milestone(step) and not current.stop
        current.step = step
        if waits:
            current.waiting = asyncio.get_running_loop().create_future()
        self._out.put_nowait(Reported(order, current.task.trial, step, metrics, saved))
        if waits and current.waiting is not None:
            return await current.waiting
        return not current.stop

    async def address(self) -> tuple[str, int]:
        """Where rank 0 listens; waits until it does."""
        await self._listening.wait()
        return self._address

    async def listen(self, host: str, port: int) -> None:
        """Rank 0 says where it listens."""
        self._address = (host, port)
        self._listening.set()

    async def arrive(self) -> None:
        """One more rank is up."""
        self._present += 1
        if self._present == self._world_size:
            self._out.put_nowait(Ready())

    async def next(self, rank: int, outcome: Outcome | None) -> Assignment | None:
        """A rank gives in how its last order went, and waits for the next; None: go home."""
        if outcome is not None:
            self._finish(rank, outcome)
        return await self._tasks[rank].get()

    def _finish(self, rank: int, outcome: Outcome) -> None:
        current = self._current
        if current is None or current.task.order != outcome.order:
            return
        current.outcomes[rank] = outcome
        if len(current.outcomes) == self._world_size:
            self._conclude(current, clean=True)
        elif outcome.kind != "ended":
            # The others may be in a collective that never ends, or at a milestone.
            current.stop = True
            if current.waiting is not None and not current.waiting.done():
                current.waiting.set_result(False)
            loop = asyncio.get_running_loop()
            loop.call_later(GRACE_S, lambda: self._conclude(current, clean=False))

    def _conclude(self, current: _Current, clean: bool) -> None:
        if current.over:
            return
        current.over = True
        outcomes = list(current.outcomes.values())
        failures = sorted(
            (outcome for outcome in outcomes if outcome.kind != "ended"),
            key=lambda outcome: outcome.kind == "collateral",
        )
        residues = tuple(dict.fromkeys(text for each in outcomes for text in each.residues))
        failure = failures[0] if failures else None
        task = current.task
        self._out.put_nowait(Finished(task.order, task.trial, failure, clean, residues))


class Rank:
    """One process of a slot."""

    def __init__(self, rank: int, place: Place) -> None:
        self._rank, self._place = rank, place
        sys.path[:0] = [folder for folder in place.path if folder not in sys.path]

    def serve(self, leader: Any) -> None:
        """Carry out orders until there are no more; does not return before."""
        place, rank = self._place, self._rank
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(place.world_size), LOCAL_RANK="0")
        load.resolve(place.trainable)  # imports what it needs, so that the first order is warm too
        meeting = self._meet(leader) if place.world_size > 1 else None
        ray.get(leader.arrive.remote())
        outcome: Outcome | None = None
        while (task := ray.get(leader.next.remote(rank, outcome))) is not None:
            with captured(log_file(place.folder, task.trial, task.order, rank)):
                outcome = self._carry_out(leader, task, meeting)

    def _meet(self, leader: Any) -> "Meeting":
        from trainables.parallel.group import Meeting

        world_size, gpu = self._place.world_size, self._place.gpu
        here = ray.util.get_node_ip_address()
        if self._rank == 0:
            meeting = Meeting.open(here, world_size, gpu)
            ray.get(leader.listen.remote(here, meeting.port))
            return meeting
        host, port = ray.get(leader.address.remote())
        return Meeting.join(host, port, self._rank, world_size, gpu)

    def _carry_out(self, leader: Any, task: Assignment, meeting: "Meeting | None") -> Outcome:
        if meeting is None:
            return carry_out(self._place, task, self._rank, _Line(leader, task))
        if self._rank > 0:
            link = _Listener(meeting, task.order)
            return carry_out(self._place, task, self._rank, link, meeting.group(task.order))
        line = _Line(leader, task, meeting)
        try:
            return carry_out(self._place, task, self._rank, line, meeting.group(task.order))
        finally:
            meeting.tell(task.order, line.number, OVER)  # nobody waits for a report any more


@dataclass
class _Line:
    """Rank 0's link: to the leader, and on to the other ranks."""

    leader: Any
    task: Assignment
    meeting: "Meeting | None" = None
    number: int = 0  # of the next report

    def exchange(self, step: int, metrics: Mapping[str, float], checkpoint: Saved | None) -> bool:
        task = self.task
        answer = self.leader.report.remote(task.order, step, metrics, checkpoint)
        # The last report needs no answer: the order ends anyhow.
        last = step == task.until and step not in task.milestones
        go_on = True if last else bool(ray.get(answer))
        if self.meeting is not None:
            self.meeting.tell(task.order, self.number, f"{step} {GO if go_on else STOP}")
        self.number += 1
        return go_on


@dataclass
class _Listener:
    """The link of the other ranks: they hear what rank 0 was told."""

    meeting: "Meeting"
    order: int
    number: int = 0

    def exchange(self, step: int, metrics: Mapping[str, float], checkpoint: Saved | None) -> bool:
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
        return verdict == GO
