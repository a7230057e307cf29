"""When a Task's state is written, by whom, and where training goes back to.

Where every rank holds all of it, rank 0 writes it alone; where ranks hold parts, each writes its
own. What a report need not wait for is copied, and written by a thread while training goes on.
"""

import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist

from trainables.checkpoints import checkpoint as checkpoints
from trainables.checkpoints import environment, generators, snapshot
from trainables.checkpoints.behind import Behind
from trainables.checkpoints.checkpoint import Entry, Period, Saved
from trainables.checkpoints.restoring import restore
from trainables.checkpoints.snapshot import Snapshot, Source
from trainables.checkpoints.storing import check_complete, read, write, write_shards
from trainables.fitting.state import TrainingState
from trainables.parallel.strategies import Strategy
from trainables.randomness import derive, seed_all
from trainables.worker import Worker

WHOLE = ("single", "ddp", "local_sgd", "deepspeed")  # strategies under which rank 0 has it all
SMALL = 8 * 2**20  # bytes; on 2 busy cores, to write 8 MiB at once takes no longer in all
ASKING = 0.5  # seconds between ranks' questions whether a period of time is over


@dataclass
class Progress:
    """How long ago a checkpoint was last begun."""

    place: tuple[int, int] = (0, 0)  # steps, and updates of the next one, in the furthest so far
    updates: int = 0  # since
    since: float = field(default_factory=time.monotonic)
    patience: int = 1  # updates until ranks ask whether a period of time is over
    asked: float = field(default_factory=time.monotonic)
    asked_after: int = 0  # updates between the last two questions


@dataclass
class Saver:
    """Writes and reads the checkpoints of an order; within it, nothing is lost on the way."""

    strategy: Strategy
    progress: Progress = field(default_factory=Progress, init=False)
    behind: Behind = field(default_factory=Behind, init=False)
    beginning: Snapshot | None = field(default=None, init=False)  # to go back to; else a checkpoint
    amid: dict[str, Any] = field(default_factory=dict, init=False)  # what draws on amid a step
    group: dist.ProcessGroup | None = field(default=None, init=False)  # of those who write shards

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        """Wait for what is being written: what training came to so far is worth as much as ever."""
        try:
            self.behind.wait()
        except Exception:
            if kind is None:
                raise
        if self.group is not None and kind is None:
            dist.destroy_process_group(self.group)
        self.group = None

    def restore(self, state: TrainingState) -> None:
        """Put what the order starts from into the state; nothing if it starts from scratch."""
        if self._worker.start is not None:
            self._fetch(self._worker.start, state)
            if self._worker.copied:
                state.marks.slower = 1.0  # the values that it was given are its own
        elif self._worker.nan == "rollback":
            self.beginning = snapshot.take(state).copied()

    def resume(self, step: int, within: int, state: TrainingState) -> None:
        """Let random numbers and the tally of losses go on amid a step, after these updates of it.

        Bit by bit on as many ranks as there were; on others, random numbers begin anew.
        """
        worker, place = self._worker, self.strategy.place
        seed_all(derive(worker.seed, "step", step, place, "within", within))
        if self.amid["ranks_are"] == self._ranks_are:
            own = self.amid["ranks"][worker.rank]
            generators.restore(own["generators"], worker.device)
            state.marks.losses = own["losses"].to(worker.device)
        else:
            ranks = self.strategy.sum(torch.ones_like(state.marks.losses))
            state.marks.losses = self.amid["losses"].to(worker.device) / ranks

    def save(self, step: int, state: TrainingState) -> Path | None:
        """The checkpoint to give with the report of a step; None: there is none to give."""
        worker = self._worker
        if not worker.due(step):
            return None
        awaited = step in worker.milestones or step == worker.until
        taken = snapshot.take(state)
        if not awaited and not self._is_small(taken):
            return None
        self._begin(step, 0)
        return self._write(taken, (step, 0))

    def save_behind(self, step: int, state: TrainingState) -> None:
        """Keep one of a step that has been reported, if it is due and was not given."""
        every = self._worker.every
        if self.progress.place >= (step, 0):
            return
        if self._is_over() if isinstance(every, Period) else self._worker.due(step):
            self.keep_step(step, state)

    def save_within(self, step: int, updates: int, of: int, state: TrainingState) -> None:
        """Keep one amid a step, if that is due after this update; a step's last is its report's."""
        if not isinstance(self._worker.every, Period):
            return
        self.progress.updates += 1
        if updates == of or self.progress.place >= (step - 1, updates) or not self._is_over():
            return
        self.keep_within(step, updates, state)

    def keep_step(self, step: int, state: TrainingState) -> None:
        """Keep one of a step that has been reported, unless there is one."""
        if self.progress.place < (step, 0):
            self._keep(step, 0, snapshot.take(state))

    def keep_within(self, step: int, updates: int, state: TrainingState) -> None:
        """Keep one amid a step, after so many updates of it, unless there is one."""
        if self.progress.place >= (step - 1, updates):
            return
        self.strategy.agree(state)
        if self._parted:
            self.strategy.share_buffers(state.model)  # any rank's are written; rank 0's count
        losses = state.marks.losses
        own = {"losses": losses.clone().cpu(), "generators": generators.states(self._worker.device)}
        taken = snapshot.take(state)
        taken.values["amid"] = {
            "ranks_are": self._ranks_are,
            "losses": self.strategy.sum(losses.clone()).cpu(),
            "ranks": self._gathered(own),  # on rank 0
        }
        self._keep(step - 1, updates, taken)

    def go_back(self, state: TrainingState) -> tuple[int, int]:
        """Restore the last checkpoint, or the beginning; returns step and updates done.

        The learning rate stays as slow as it has become.
        """
        self.behind.wait()
        slower = state.marks.slower
        kept, start = self._shared(self._worker.saved), self._worker.start
        step, within = self._worker.first, self._worker.within
        if kept is not None:
            self._fetch(kept, state)
            step, within = kept.step + 1, kept.within
        elif start is not None:
            # Another trial's may have been made at another step: the order's clock counts.
            self._fetch(start, state)
        elif self.beginning is not None:
            self._load(self.beginning, state)
        else:
            raise RuntimeError("there is nothing to go back to: failure.nan is not rollback")
        state.marks.slower = slower
        self.progress.updates, self.progress.since = 0, time.monotonic()
        return step, within

    @property
    def _worker(self) -> Worker:
        return self.strategy.worker

    @property
    def _ranks_are(self) -> tuple[str, int, int]:
        """What ranks must be for one to go on amid a step as if nothing had been."""
        worker = self._worker
        return worker.training.strategy, worker.world_size, self.strategy.places

    @property
    def _parted(self) -> bool:
        """Whether each rank writes its own part."""
        worker = self._worker
        return worker.world_size > 1 and worker.training.strategy not in WHOLE

    def _is_small(self, taken: Snapshot) -> bool:
        return not self._parted and taken.size < SMALL

    def _fetch(self, saved: Saved, state: TrainingState) -> None:
        folder = self._worker.fetched(saved)
        self._load(read(folder), state)
        self._worker.keeper.drop(folder)

    def _load(self, source: Source, state: TrainingState) -> None:
        self.amid = dict(source.values.get("amid") or {})  # type: ignore[call-overload]
        restore(source, state, whole=self._worker.training.strategy != "pipeline")

    def _begin(self, step: int, within: int) -> None:
        self.behind.wait()
        self.progress.place, self.progress.updates = (step, within), 0
        self.progress.since = time.monotonic()

    def _write(self, taken: Snapshot, place: tuple[int, int]) -> Path | None:
        """Write it into a scratch folder of rank 0, which gets it; others get None."""
        first = self._worker.rank == 0
        if not self._parted:
            if not first:
                return None
            write(taken, folder := self._worker.scratch())
            environment.record(self._worker, folder)
            return folder
        writers = self._writers()
        if self._worker.storage is None:
            box = [str(self._worker.scratch()) if first else ""]
            dist.broadcast_object_list(box, src=0, group=writers)
            write_shards(taken, folder := Path(box[0]), writers)
            elsewhere: dict[str, Entry] = {}
        else:
            write_shards(taken, folder := self._worker.scratch(), writers)
            elsewhere = self._sent(folder, place, writers)
        if not first:
            return None
        check_complete(folder, elsewhere)
        environment.record(self._worker, folder)
        return folder

    def _sent(
        self, folder: Path, place: tuple[int, int], writers: dist.ProcessGroup
    ) -> dict[str, Entry]:
        """Let each rank but the first put its part into the store; what is there, on rank 0."""
        first = self._worker.rank == 0
        own = {} if first else self._worker.keeper.send_part(*place, folder)
        parts: list[dict[str, Entry]] = [{} for _ in range(self._worker.world_size)]
        dist.gather_object(own, parts if first else None, dst=0, group=writers)
        elsewhere = {name: entry for part in parts for name, entry in part.items()}
        if first:
            (folder / checkpoints.ELSEWHERE).write_text(json.dumps(elsewhere))
        return elsewhere

    def _keep(self, step: int, within: int, taken: Snapshot) -> None:
        """Write it and keep it, at once if it is small."""
        self._begin(step, within)
        if not self._parted and self._worker.rank != 0:
            return

        def work() -> None:
            if (folder := self._write(taken, (step, within))) is not None:
                self._worker.keep(step, folder, within)

        if self._is_small(taken):
            work()
            return
        taken = taken.copied()
        if self._parted:
            self._writers()  # made here: that is a collective of training's group
        self.behind.start(work)

    def _writers(self) -> dist.ProcessGroup:
        """A group for shards: the thread's collectives must not meet those of training."""
        if self.group is None:
            self.group = dist.new_group(backend="gloo")
        return self.group

    def _is_over(self) -> bool:
        """Whether the period between checkpoints is over, the same on every rank."""
        worker, progress, every = self._worker, self.progress, self._worker.every
        over = worker.due_within(progress.updates, time.monotonic() - progress.since)
        if worker.world_size == 1 or isinstance(every, int) or every.seconds is None:
            return over
        # Rank 0's clock decides. To ask takes a broadcast, and a GPU to finish what it is at.
        progress.patience -= 1
        progress.asked_after += 1
        if progress.patience > 0:
            return False
        now = time.monotonic()
        pace = (now - progress.asked) / progress.asked_after
        patience = max(1, min(math.floor(ASKING / max(pace, 1e-6)), 2**31))
        answer = torch.tensor([int(over), patience], device=worker.device)
        dist.broadcast(answer, src=0)
        over, progress.patience = bool(answer[0]), int(answer[1])
        progress.asked, progress.asked_after = now, 0
        return over

    def _gathered(self, own: dict[str, Any]) -> list[Any]:
        """What each rank has, on rank 0."""
        worker = self._worker
        found: list[Any] = [own] * worker.world_size
        if worker.world_size > 1:
            dist.gather_object(own, found if worker.rank == 0 else None, dst=0)
        return found if worker.rank == 0 else []

    def _shared(self, saved: Saved | None) -> Saved | None:
        """Rank 0's."""
        box = [saved]
        if self._worker.world_size > 1:
            dist.broadcast_object_list(box, src=0)
        return box[0]
