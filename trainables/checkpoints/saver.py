"""Decide when and by which ranks a Task's state is saved, and restore it on resume and rollback.

If every rank holds the full state, rank 0 writes it alone; if ranks hold shards, each writes its
own. Checkpoints that no decision waits for are copied to host memory and written by a background
thread.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import torch
import torch.distributed as dist

from trainables import environment
from trainables.checkpoints import generators, snapshot
from trainables.checkpoints.async_writer import AsyncWriter
from trainables.checkpoints.restoring import restore
from trainables.checkpoints.snapshot import CheckpointSnapshot, SnapshotSource
from trainables.checkpoints.storing import check_complete, read, write, write_shards
from trainables.data.streaming import StreamShard
from trainables.parallel.gathering import gather_results
from trainables.parallel.rank_poll import RankPoll
from trainables.parallel.strategy import Strategy
from trainables.randomness import derive, seed_all
from trainables.storage import checkpoint as checkpoints
from trainables.storage.checkpoint import Entry, Period, Saved
from trainables.training_state.loop_state import TrainingState
from trainables.worker import Worker

# Smaller states are written inline: on 2 busy cores, a thread is no faster in all up to 8 MiB.
INLINE_BYTES = 8 * 2**20
Result = TypeVar("Result")
POLL_S = 0.5  # seconds between the ranks' checks whether a period of time is over


@dataclass
class Progress:
    """The time and the updates since the last checkpoint was begun."""

    position: tuple[int, int] = (0, 0)  # of the furthest checkpoint: steps, updates of the next
    updates: int = 0  # since the last checkpoint was begun
    begun_at: float = field(default_factory=time.monotonic)


@dataclass
class Saver:
    """Write and read the checkpoints of an order; leaving the context waits for pending writes."""

    strategy: Strategy
    progress: Progress = field(default_factory=Progress, init=False)
    async_writer: AsyncWriter = field(default_factory=AsyncWriter, init=False)
    beginning: CheckpointSnapshot | None = field(
        default=None, init=False
    )  # for rollback without checkpoints
    # Generators and loss tally of the loaded checkpoint; empty if that is of whole epochs only.
    mid_epoch_state: dict[str, Any] = field(default_factory=dict, init=False)
    group: dist.ProcessGroup | None = field(default=None, init=False)  # of ranks writing shards
    stream: StreamShard | None = field(default=None, init=False)  # whose position is saved too
    poll: RankPoll = field(init=False)  # of whether a period of time is over

    def __post_init__(self) -> None:
        self.poll = RankPoll(self._worker, POLL_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for the pending checkpoint, which is useful even if training failed."""
        try:
            self.async_writer.wait()
        except Exception:
            if kind is None:
                raise
        if self.group is not None and kind is None:
            dist.destroy_process_group(self.group)
        self.group = None

    def restore(self, state: TrainingState) -> None:
        """Load the checkpoint that the order starts from into the state, if there is one."""
        if self._worker.start is not None:
            self._load_start(self._worker.start, state)
        elif self._worker.nan == "rollback":
            self.beginning = snapshot.take(state).copied()

    def resume(self, updates: int, state: TrainingState) -> None:
        """Restore random generators, loss tally and stream within an epoch, after so many updates.

        With the same number of ranks, training goes on bit by bit as before; otherwise, and after
        another trial's checkpoint, the generators are seeded anew.
        """
        worker, place, saved = self._worker, self.strategy.dp_rank, self.mid_epoch_state
        seed_all(derive(worker.seed, "updates", updates, place))
        if self.stream is not None and saved:
            number = worker.rank if saved["ranks_are"] == self._rank_layout else 0
            self.stream.restore(saved["ranks"][number]["stream"])
        elif self.stream is not None:
            self.stream.skip(0)  # back at the trial's beginning
        if not saved:
            return
        if saved["ranks_are"] == self._rank_layout and not saved.get("copied"):
            own = saved["ranks"][worker.rank]
            generators.restore(own["generators"], worker.device)
            state.loop_state.losses = own["losses"].to(worker.device)
        else:
            ranks = self.strategy.all_reduce_sum(torch.ones_like(state.loop_state.losses))
            state.loop_state.losses = saved["losses"].to(worker.device) / ranks

    def save(self, step: int, state: TrainingState) -> Path | None:
        """Write the checkpoint for a step's report, and return its folder; None: there is none."""
        worker = self._worker
        if not worker.due(step):
            return None
        decision_waits = step in worker.milestones or step == worker.until
        state_snapshot = self._take(state)
        if not decision_waits and not self._is_small(state_snapshot):
            return None
        self._begin(step, 0)
        return self._write(state_snapshot, (step, 0))

    def save_async(self, step: int, state: TrainingState) -> None:
        """Save the state of a reported step if a checkpoint is due and the report had none."""
        every = self._worker.every
        if self.progress.position >= (step, 0):
            return
        if self._period_is_over() if isinstance(every, Period) else self._worker.due(step):
            self.keep_step(step, state)

    def save_within(self, step: int, updates: int, state: TrainingState, last: bool) -> None:
        """Save the state after so many updates beyond a step, if due.

        Args:
            last: whether a report follows, which has its own checkpoint.
        """
        if not isinstance(self._worker.every, Period):
            return
        self.progress.updates += 1
        if not last and self.progress.position < (step, updates) and self._period_is_over():
            self.keep_within(step, updates, state)

    def keep_step(self, step: int, state: TrainingState) -> None:
        """Save the state of a reported step, unless it is saved already."""
        if self.progress.position < (step, 0):
            self._save(step, 0, self._take(state))

    def keep_within(self, step: int, updates: int, state: TrainingState) -> None:
        """Save the state after so many updates beyond a step, unless it is saved already."""
        if self.progress.position >= (step, updates):
            return
        self.strategy.sync_replicas(state)
        if self._is_sharded:
            self.strategy.share_buffers(state.model)  # a shard may hold any rank's; use rank 0's
        self._save(step, updates, self._take(state, amid=True))

    def _take(self, state: TrainingState, amid: bool = False) -> CheckpointSnapshot:
        """Return a snapshot; amid steps or epochs with each rank's generators and loss tally."""
        state_snapshot = snapshot.take(state)
        if amid or state.loop_state.amid:
            losses = state.loop_state.losses
            rank_state = {
                "losses": losses.clone().cpu(),
                "generators": generators.states(self._worker.device),
                "stream": None if self.stream is None else self.stream.state(),
            }
            state_snapshot.values["amid"] = {
                "ranks_are": self._rank_layout,
                "losses": self.strategy.all_reduce_sum(losses.clone()).cpu(),
                "ranks": self._gather_on_rank_0(rank_state),
            }
        return state_snapshot

    def rollback(self, state: TrainingState) -> tuple[int, int]:
        """Restore the last checkpoint, or the order's start; return its step and updates beyond.

        The learning rate keeps its reductions so far.
        """
        self.async_writer.wait()
        slower = state.loop_state.lr_backoff
        saved, start = [self._worker.saved], self._worker.start
        if self._worker.world_size > 1:
            dist.broadcast_object_list(saved, src=0)
        step, within = self._worker.first - 1, self._worker.within
        if (last_saved := saved[0]) is not None:
            self._load_saved(last_saved, state)
            step, within = last_saved.step, last_saved.within
        elif start is not None:
            self._load_start(start, state)
        elif self.beginning is not None:
            self._load(self.beginning, state)
        else:
            raise RuntimeError("there is nothing to go back to: failure.nan is not rollback")
        state.loop_state.lr_backoff = slower
        self.progress.updates, self.progress.begun_at = 0, time.monotonic()
        return step, within

    @property
    def _worker(self) -> Worker:
        return self.strategy.worker

    @property
    def _rank_layout(self) -> tuple[str, int, int]:
        """The layout of the ranks, which must be the same to resume generators in mid-step."""
        worker = self._worker
        return worker.training.strategy, worker.world_size, self.strategy.dp_size

    @property
    def _is_sharded(self) -> bool:
        """Whether each rank writes its own part."""
        return not self.strategy.traits.full_state_on_rank_0

    def _is_small(self, state_snapshot: CheckpointSnapshot) -> bool:
        return not self._is_sharded and state_snapshot.size < INLINE_BYTES

    def _load_start(self, start: Saved, state: TrainingState) -> None:
        """Load the checkpoint that the order starts from.

        Another trial's may be of another step and learning rate: the order's own ones count.
        """
        self._load_saved(start, state)
        if self._worker.copied:
            state.loop_state.lr_backoff = 1.0
            state.loop_state.tokens = float(self._worker.first - 1)
            if self.mid_epoch_state:
                self.mid_epoch_state["copied"] = True

    def _load_saved(self, saved: Saved, state: TrainingState) -> None:
        """Load a checkpoint, verified by the first of the ranks that see the same files.

        Raises:
            CheckpointDamaged: its bytes are not those that were saved.
            StoreFailed: the store can't be reached, or refuses.
        """
        views = self._on_each_rank(checkpoints.file_system_view)
        first_in_view = views.index(views[self._worker.rank])
        is_first = self._worker.rank == first_in_view
        folders = self._on_each_rank(lambda: self._worker.fetched(saved) if is_first else Path())
        folder = folders[first_in_view]
        self._on_each_rank(lambda: self._load(read(folder), state))
        if is_first:  # all ranks have read it
            self._worker.writer.drop(folder)

    def _on_each_rank(self, work: Callable[[], Result]) -> list[Result]:
        """Run `work` on each rank, and return all results on every rank; fail on all or none."""
        return gather_results(work) if self._worker.world_size > 1 else [work()]

    def _load(self, source: SnapshotSource, state: TrainingState) -> None:
        self.mid_epoch_state = dict(source.values.get("amid") or {})  # type: ignore[call-overload]
        restore(source, state, whole=not self.strategy.traits.stages)

    def _begin(self, step: int, within: int) -> None:
        self.async_writer.wait()
        self.progress.position, self.progress.updates = (step, within), 0
        self.progress.begun_at = time.monotonic()

    def _write(self, state_snapshot: CheckpointSnapshot, position: tuple[int, int]) -> Path | None:
        """Write a snapshot into a scratch folder of rank 0; return it there, None on the others."""
        is_rank_0 = self._worker.rank == 0
        if not self._is_sharded:
            if not is_rank_0:
                return None
            write(state_snapshot, folder := self._worker.scratch())
            environment.record(self._worker, folder)
            return folder
        writers, to_store = self._writer_group(), self._worker.storage is not None

        def scratch() -> Path:
            return self._worker.scratch() if is_rank_0 or to_store else Path()

        folders = gather_results(scratch, writers)
        folder = folders[self._worker.rank if to_store else 0]
        write_shards(state_snapshot, folder, writers)
        uploaded = self._upload_parts(folder, position, writers) if to_store else {}

        def complete() -> None:
            if is_rank_0:
                if to_store:
                    (folder / checkpoints.PARTS_IN_STORE).write_text(json.dumps(uploaded))
                check_complete(folder, uploaded)
                environment.record(self._worker, folder)

        gather_results(complete, writers)
        return folder if is_rank_0 else None

    def _upload_parts(
        self, folder: Path, position: tuple[int, int], writers: dist.ProcessGroup
    ) -> dict[str, Entry]:
        """Let each rank but the first upload its part; return the uploaded files on every rank."""

        def send() -> dict[str, Entry]:
            return (
                {} if self._worker.rank == 0 else self._worker.writer.send_part(*position, folder)
            )

        parts = gather_results(send, writers)
        return {name: entry for part in parts for name, entry in part.items()}

    def _save(self, step: int, within: int, state_snapshot: CheckpointSnapshot) -> None:
        """Write a snapshot and keep it: inline if it is small, else from a thread."""
        self._begin(step, within)
        if not self._is_sharded and self._worker.rank != 0:
            return

        def work() -> None:
            if (folder := self._write(state_snapshot, (step, within))) is not None:
                self._worker.keep(step, folder, within)

        if self._is_small(state_snapshot):
            work()
            return
        state_snapshot = state_snapshot.copied()
        if self._is_sharded:
            self._writer_group()  # created here, as this is a collective of training's group
        self.async_writer.start(work)

    def _writer_group(self) -> dist.ProcessGroup:
        """Return a group for writing shards, so that its collectives do not mix with training's."""
        if self.group is None:
            self.group = dist.new_group(backend="gloo")
        return self.group

    def _period_is_over(self) -> bool:
        """Return whether the period between checkpoints is over, the same on every rank."""
        worker, seconds = self._worker, time.monotonic() - self.progress.begun_at
        over = worker.due_within(self.progress.updates, seconds)
        if isinstance(worker.every, int) or worker.every.seconds is None:
            return over
        return self.poll.holds(over and worker.rank == 0)  # rank 0's clock decides

    def _gather_on_rank_0(self, value: dict[str, Any]) -> list[Any]:
        """Return the objects of all ranks on rank 0, and an empty list on the others."""
        worker = self._worker
        gathered: list[Any] = [value] * worker.world_size
        if worker.world_size > 1:
            dist.gather_object(value, gathered if worker.rank == 0 else None, dst=0)
        return gathered if worker.rank == 0 else []
