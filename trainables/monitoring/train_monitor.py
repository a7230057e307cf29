"""Measurements of every order, at next to no cost: speed, phases, memory, stragglers."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from trainables.monitoring import clock, flops, memory, nvml, stragglers
from trainables.monitoring.peaks import peak
from trainables.worker import Worker


class TrainMonitor:
    """A monitor of an order's updates; `collect` returns their metrics since the last call."""

    def __init__(self, worker: Worker) -> None:
        device, training = worker.device, worker.training
        self.clock = clock.Clock(device)
        self._device, self._ranks = device, worker.world_size
        # Compiled code cannot be counted, nor can a rank's part of a layer or a pipeline.
        unsplit = training.traits.data_parallel and training.tensor_parallel == 1
        countable = unsplit and training.compile == "none"
        self._peak = peak(device, training.precision, training.tf32) if countable else None
        self._flops = 0  # in an update, on this rank
        self._counted = self._peak is None  # counted once, in the order's first update
        self._times: dict[str, float] = {}
        self._updates = 0
        self._begun: clock.Mark | None = None  # start of the current run of updates
        self._spent = self._waited = 0.0  # seconds of updates since the last `collect`
        memory.reset_peak(device)

    def update(self) -> AbstractContextManager[None]:
        """Return the context in which to make an update."""
        self.clock.next_update()
        self._updates += 1
        if self._begun is None:
            self._begun = self.clock.mark()
        if self._counted:
            return clock.IDLE
        self._counted = True
        return self._count_operations()

    @contextmanager
    def _count_operations(self) -> Iterator[None]:
        with flops.count_flops() as count:
            yield
        self._flops = count.model

    def end_epoch(self, waited: float) -> None:
        """Mark the end of a step's updates; the time after it does not count.

        Args:
            waited: seconds of these updates spent on waiting for data.
        """
        self._times = self.clock.collect()
        if self._begun is not None:
            end = self.clock.mark()
            end.synchronize()
            self._spent += self._begun.elapsed_time(end) / 1e3
            self._begun = None
        self._waited += waited

    def collect(self, samples: int, elements: float) -> dict[str, float]:
        """Return the metrics of the updates since the last call; every rank takes part.

        Args:
            samples: the number of samples on which all ranks trained.
            elements: the number of values of the loss in these samples.
        """
        times, updates = self._times, self._updates
        values = clock.metrics(times) | memory.measure(self._device).metrics
        values |= nvml.metrics(self._device)
        seconds = times.get("update", 0.0)
        if seconds:
            values["perf/samples_per_s"] = samples / (seconds * updates)
            values["perf/tokens_per_s"] = elements / (seconds * updates)
        if self._peak is not None and seconds:
            values["perf/mfu"] = flops.mfu(self._flops, seconds, self._peak)
        if self._ranks > 1:
            busy = stragglers.gather_busy_seconds(stragglers.busy_seconds(times), self._device)
            values |= stragglers.slowest(busy)
        values["perf/data_wait_fraction"] = self._waited / self._spent if self._spent else 0.0
        self._updates, self._spent, self._waited = 0, 0.0, 0.0
        memory.reset_peak(self._device)
        return values
