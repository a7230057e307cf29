"""Where an update's time goes: data, forward, backward, communication, optimizer.

On a CPU a part's time is that of the host. On a GPU it is what the part takes of the device's own
timeline (CUDA events, read after the fact, so nothing waits within an update): data that is
loaded while the device still works costs nothing there, and counts as nothing.

`communication` is what ranks' exchange adds to an update: the parts that the loop names so
(explicit collectives), and, where the loop calls `split`, the end of each backward pass: from the
last gradient to the last byte, the wait for slower ranks included. What overlaps with computation
costs no time and is not in it. Collectives inside forward and backward (fully_shard's gathering of
weights, SyncBatchNorm, tensor parallelism) cannot be told from computation, and count as those.
"""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from time import perf_counter
from types import TracebackType
from typing import Literal, Protocol, Self, get_args

import torch
from torch import Tensor

Part = Literal["data", "forward", "backward", "communication", "optimizer"]
IDLE = nullcontext()
EVERY = 25  # to time all parts takes 10 us, and 100 where the update has filled the caches


class Clock:
    """Times the parts of every n-th update, and gives their means when asked.

    The first update is never timed: it compiles, tunes kernels, fills caches.
    """

    def __init__(self, device: torch.device, every: int = EVERY) -> None:
        if every < 1:
            raise ValueError(f"clock: every is {every}; time each n-th update, n being 1 or more")
        on_gpu = device.type == "cuda"
        self.mark: Callable[[], Mark] = partial(_recorded, device) if on_gpu else Instant
        self._every = every
        self._spans = {name: Span(self, name) for name in get_args(Part)}
        self._begun = 0  # updates since the last take
        self._wait = 1  # updates until one is timed
        self._sampled = False  # the update that runs is timed by part
        self._laps: deque[Lap] = deque()  # that the device may not have passed yet
        self._start: Mark | None = None  # of a sampled update
        self._last: Mark | None = None  # the end of its last part so far
        self._gradients: Mark | None = None  # when its backward pass had computed them all
        self._samples = 0
        self._spent: dict[str, float] = {}

    def next_update(self) -> None:
        """An update starts."""
        if self._sampled:
            self._close()
        self._begun += 1
        if self._wait:
            self._wait -= 1
            return
        self._wait, self._sampled = self._every - 1, True
        self._start = self.mark()

    def part(self, name: Part) -> AbstractContextManager[None]:
        """Within it, the time goes to this part; parts do not nest."""
        if self._sampled:
            try:
                return self._spans[name]
            except KeyError:
                allowed = ", ".join(self._spans)
                raise ValueError(f"clock: part is {name!r}; choose one of {allowed}") from None
        return IDLE

    def split(self, loss: Tensor) -> None:
        """Call before `loss.backward()`: what follows its last gradient is communication.

        DistributedDataParallel and fully_shard wait for their reductions in a callback at the end
        of the backward pass (torch 2.13); ours is queued before, so it runs first.
        """
        self._gradients = None  # of a backward pass that failed
        if self._sampled:
            loss.register_hook(self._queue)

    def take(self) -> dict[str, float]:
        """Mean seconds by part of the sampled updates since the last take, and of the `update`.

        That goes from `next_update` to the end of its last part, so it may be more than their sum.
        No update sampled: empty. On a GPU it waits until the device has passed the last one.
        """
        self._close()
        if self._laps:
            self._laps[-1][2].synchronize()
            self._collect()
        times = {name: spent / self._samples for name, spent in self._spent.items()}
        # The next one finds an idle device: it is timed only if there is no other.
        self._wait = 1 if self._begun > 1 else 0
        self._begun, self._samples, self._spent = 0, 0, {}
        return times

    def add(self, part: Part, start: "Mark") -> None:
        """A part ends here; a backward pass is split where its gradients were complete."""
        end = self.mark()
        if part == "backward" and self._gradients is not None:
            self._laps.append(("communication", self._gradients, end))
            split, self._gradients = self._gradients, None
            self._laps.append((part, start, split))
        else:
            self._laps.append((part, start, end))
        self._last = end

    def _close(self) -> None:
        """The sampled update is over, if there is one."""
        if self._start is not None and self._last is not None:
            self._laps.append(("update", self._start, self._last))
            self._samples += 1
        self._start = self._last = None
        self._sampled = False
        self._collect()

    def _queue(self, _gradient: Tensor) -> None:
        # No public name exists; fully_shard's own callback is queued this way.
        torch.autograd.Variable._execution_engine.queue_callback(self._complete)

    def _complete(self) -> None:
        self._gradients = self.mark()

    def _collect(self) -> None:
        while self._laps and self._laps[0][2].query():
            part, start, end = self._laps.popleft()
            self._spent[part] = self._spent.get(part, 0.0) + start.elapsed_time(end) / 1e3


class Span:
    """A part that is timed; made once, entered at each update."""

    __slots__ = ("_clock", "_part", "_start")

    def __init__(self, clock: Clock, part: Part) -> None:
        self._clock, self._part = clock, part
        self._start: Mark | None = None

    def __enter__(self) -> None:
        self._start = self._clock.mark()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and self._start is not None:
            self._clock.add(self._part, self._start)


class Mark(Protocol):
    """A point on a timeline: what a CUDA event can do."""

    def query(self) -> bool:
        """Whether it has been passed."""
        ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end_event: Self) -> float:
        """Milliseconds from here to there; both have been passed."""
        ...


Lap = tuple[Part | Literal["update"], Mark, Mark]


class Instant:
    """A Mark on the host's timeline: the moment it is made."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at = perf_counter()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end_event: "Instant") -> float:
        return (end_event._at - self._at) * 1e3


def _recorded(device: torch.device) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def metrics(times: Mapping[str, float]) -> dict[str, float]:
    """What `take` gave, in milliseconds, by the names under which it is reported."""
    names = {"update": "step"}
    return {f"perf/{names.get(name, name)}_ms": 1e3 * spent for name, spent in times.items()}
