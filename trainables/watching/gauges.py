"""What is watched in every order, at next to no cost: speed, time by part, memory, stragglers."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from trainables.watching import attention, clock, flops, memory, nvml, stragglers
from trainables.watching.peaks import peak
from trainables.watching.throughput import throughput
from trainables.worker import Worker


class Gauges:
    """Measures an order's updates; `take` gives what a report says of those since the last."""

    def __init__(self, worker: Worker) -> None:
        device, training = worker.device, worker.training
        self.clock = clock.Clock(device)
        self._device, self._ranks = device, worker.world_size
        # Neither what is compiled can be counted, nor a rank's part of a layer or a pipeline.
        whole = training.strategy not in ("tensor", "pipeline") and training.tensor_ranks == 1
        known = whole and training.compile == "none"
        self._peak = peak(device, training.precision, training.tf32) if known else None
        self._flops = 0  # of an update, on this rank
        self._kernels: dict[str, float] = {}
        self._looked = training.compile != "none"  # once, at the order's first update
        self._gpu = nvml.Gpu(nvml.uuid(device))
        self._times: dict[str, float] = {}
        self._updates = 0
        self._begun: clock.Mark | None = None  # the updates that go on
        self._spent = self._waited = 0.0  # seconds of updates since the last take
        memory.reset_peak(device)

    def update(self) -> AbstractContextManager[None]:
        """An update is made within."""
        self.clock.next_update()
        self._updates += 1
        if self._begun is None:
            self._begun = self.clock.mark()
        if self._looked:
            return clock.IDLE
        self._looked = True
        return self._look()

    @contextmanager
    def _look(self) -> Iterator[None]:
        with ExitStack() as stack:
            count = stack.enter_context(flops.counted()) if self._peak is not None else None
            kernels = stack.enter_context(attention.watched())
            yield
        self._kernels = attention.metrics(kernels)
        self._flops = 0 if count is None else count.model

    def rest(self, waited: float) -> None:
        """The updates of a step are over; what follows is not timed.

        Args:
            waited: seconds that data have taken of all of them.
        """
        self._times = self.clock.take()
        if self._begun is not None:
            end = self.clock.mark()
            end.synchronize()
            self._spent += self._begun.elapsed_time(end) / 1e3
            self._begun = None
        self._waited += waited

    def take(self, samples: int, elements: float) -> dict[str, float]:
        """Metrics of the updates since the last take; every rank takes part.

        Args:
            samples: that all ranks learned from.
            elements: values of the loss among them.
        """
        times, updates = self._times, self._updates
        found = clock.metrics(times) | memory.measure(self._device).metrics | self._gpu.metrics()
        seconds = times.get("update", 0.0)
        found |= self._kernels | throughput(samples, elements, seconds * updates)
        if self._peak is not None and seconds:
            found["perf/mfu"] = flops.mfu(self._flops, seconds, self._peak)
        if self._ranks > 1:
            busy = stragglers.exchange(stragglers.busy(times), self._device)
            found |= stragglers.slowest(busy).metrics
        found["perf/data_share"] = self._waited / self._spent if self._spent else 0.0
        self._updates, self._spent, self._waited = 0, 0.0, 0.0
        memory.reset_peak(self._device)
        return found
