"""Timing of an update by phase: data, forward, backward, communication, optimizer.

On a CPU a phase is timed on the host. On a GPU it is timed on the device's own timeline (by CUDA
events, read after the fact, so nothing waits within an update): loading data while the device is
still busy costs nothing there, and counts as nothing.

`communication` is the time that exchange between ranks adds to an update: the phases that the loop
names so (explicit collectives), and, if the loop calls `split`, the end of each backward pass, from
the last gradient to the last byte, with the wait for slower ranks. Communication that overlaps with
computation costs no time and is not included. Collectives inside forward and backward (gathering
of weights by fully_shard, SyncBatchNorm, tensor parallelism) cannot be separated from computation,
and count as such.
"""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from time import perf_counter
from typing import Literal, Protocol, Self, get_args

import torch
from torch import Tensor

Phase = Literal["data", "forward", "backward", "communication", "optimizer"]
IDLE = nullcontext()
EVERY = 25  # timing all phases takes 10 us, or 100 us after an update has filled the caches


class Clock:
    """A timer of the phases of every n-th update, which returns their means on request.

    The first update is never timed: it compiles, tunes kernels, fills caches.
    """

    def __init__(self, device: torch.device, every: int = EVERY) -> None:
        on_gpu = device.type == "cuda"
        self.mark: Callable[[], Mark] = partial(_record_event, device) if on_gpu else Instant
        self._every = every
        self._spans = {name: PhaseTimer(self, name) for name in get_args(Phase)}
        self._begun = 0  # updates since the last `collect`
        self._wait = 1  # updates until the next timed one
        self._sampled = False  # whether the current update is timed by phase
        self._laps: deque[Lap] = deque()  # laps that the device may not have finished yet
        self._start: Mark | None = None  # of a sampled update
        self._last: Mark | None = None  # the end of its last phase so far
        self._gradients: Mark | None = None  # when its backward pass had all gradients
        self._samples = 0
        self._spent: dict[str, float] = {}

    def next_update(self) -> None:
        """Mark the start of an update."""
        if self._sampled:
            self._finish_update()
        self._begun += 1
        if self._wait:
            self._wait -= 1
            return
        self._wait, self._sampled = self._every - 1, True
        self._start = self.mark()

    def phase(self, name: Phase) -> AbstractContextManager[None]:
        """Time this phase of the update, within this context; phases do not nest."""
        return self._spans[name] if self._sampled else IDLE

    def split(self, loss: Tensor) -> None:
        """Count the time after the last gradient as communication; precedes `loss.backward()`.

        DistributedDataParallel and fully_shard wait for their reductions in a callback at the end
        of the backward pass (torch 2.13); this callback is queued earlier, so it runs first.
        """
        self._gradients = None  # left by a failed backward pass
        if self._sampled:
            loss.register_hook(self._queue_callback)

    def collect(self) -> dict[str, float]:
        """Return mean seconds by phase, and of the `update`, since the last call.

        `update` goes from `next_update` to the end of the last phase, so it may exceed their sum.
        The result is empty if no update was timed. On a GPU this waits for the last timed update.
        """
        self._finish_update()
        if self._laps:
            self._laps[-1][2].synchronize()
            self._add_finished_laps()
        times = {name: spent / self._samples for name, spent in self._spent.items()}
        # The next update finds an idle device: it is timed only if there is no other.
        self._wait = 1 if self._begun > 1 else 0
        self._begun, self._samples, self._spent = 0, 0, {}
        return times

    def add(self, phase: Phase, start: "Mark") -> None:
        """End a phase here; a backward pass is split where its gradients were complete."""
        end = self.mark()
        if phase == "backward" and self._gradients is not None:
            self._laps.append(("communication", self._gradients, end))
            split, self._gradients = self._gradients, None
            self._laps.append((phase, start, split))
        else:
            self._laps.append((phase, start, end))
        self._last = end

    def _finish_update(self) -> None:
        """Finish the timing of the sampled update, if there is one."""
        if self._start is not None and self._last is not None:
            self._laps.append(("update", self._start, self._last))
            self._samples += 1
        self._start = self._last = None
        self._sampled = False
        self._add_finished_laps()

    def _queue_callback(self, _gradient: Tensor) -> None:
        # torch has no public name for this; fully_shard queues its own callback so.
        torch.autograd.Variable._execution_engine.queue_callback(self._mark_gradients)

    def _mark_gradients(self) -> None:
        self._gradients = self.mark()

    def _add_finished_laps(self) -> None:
        while self._laps and self._laps[0][2].query():
            phase, start, end = self._laps.popleft()
            self._spent[phase] = self._spent.get(phase, 0.0) + start.elapsed_time(end) / 1e3


class PhaseTimer:
    """A reusable context that times a phase; created once, entered in each update."""

    __slots__ = ("_clock", "_phase", "_start")

    def __init__(self, clock: Clock, phase: Phase) -> None:
        self._clock, self._phase = clock, phase
        self._start: Mark | None = None

    def __enter__(self) -> None:
        self._start = self._clock.mark()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._start is not None:
            self._clock.add(self._phase, self._start)


class Mark(Protocol):
    """A point on a timeline, with the methods of a CUDA event."""

    def query(self) -> bool:
        """Return whether the point has been passed."""
        ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end_event: Self) -> float:
        """Return the milliseconds from here to `end_event`; both must have been passed."""
        ...


Lap = tuple[Phase | Literal["update"], Mark, Mark]


class Instant:
    """A Mark on the host's timeline, at the moment of its creation."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at = perf_counter()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end_event: "Instant") -> float:
        return (end_event._at - self._at) * 1e3


def _record_event(device: torch.device) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def metrics(times: Mapping[str, float]) -> dict[str, float]:
    """Return the times of `collect` in milliseconds, by the names under which they are reported."""
    names = {"update": "step"}
    return {f"perf/{names.get(name, name)}_ms": 1e3 * spent for name, spent in times.items()}
