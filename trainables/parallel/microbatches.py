"""The samples of one run through a pipeline, and the task's code at the pipeline's two ends.

A task calls the model in the middle of a method. The first rank leaves the method at that call,
with the model's input; the last rank runs the method with a stand-in for the model, which returns
the output of the pipeline.

Axes: B samples of a micro-batch.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from trainables.data import Batch, Source
from trainables.parallel.stages import ScheduleKey
from trainables.randomness import derive

T = TypeVar("T")


@dataclass(frozen=True)
class MicroBatches:
    """The micro-batches of one run through the pipeline, which must all have one size.

    A smaller micro-batch is padded with its first sample, and an empty one replaced by the first
    micro-batch; the outputs of the padding are cut off before they count.
    """

    source: Source
    parts: Sequence[Tensor]  # positions of samples; none is empty
    number: int  # of micro-batches, empty ones included
    seed: int  # equal on all ranks: both ends draw the same numbers, as for a mask over tokens
    training: bool

    @property
    def shape(self) -> ScheduleKey:
        """Return the shape that determines the schedule."""
        return ScheduleKey(self.training, self.number, self._size)

    def inputs(self, compute: Callable[[nn.Module, Batch], T]) -> list[Tensor]:
        """Return the tensor that the task passes to the model, for each micro-batch.

        Raises:
            ValueError: the task passes anything but one tensor, or a tensor without one row for
                each sample, where it must be padded.
        """
        tensors = []
        for number, at_B in enumerate(self.parts):
            try:
                self._call_task(compute, number, InputProbe())
            except ModelCalled as asked:
                values = asked.values
            else:
                raise ValueError("pipeline: the task did not call the model; let it, once a batch")
            tensors.append(self._padded(values, len(at_B)))
        return tensors + tensors[:1] * (self.number - len(tensors))

    def carry(self, compute: Callable[[nn.Module, Batch], T], number: int, output: Tensor) -> T:
        """Call the task with the model's output for a non-empty micro-batch; return its result."""
        samples = len(self.parts[number])
        if samples < self._size:
            _check_rows("gives", output, self._size)
            output = output[:samples]
        return self._call_task(compute, number, OutputStub(output))

    def _call_task(
        self, compute: Callable[[nn.Module, Batch], T], number: int, model: nn.Module
    ) -> T:
        batch = self.source.batch(self.parts[number])
        with seeded(derive(self.seed, "part", number), batch[0].device):
            return compute(model.train(self.training), batch)

    def _padded(self, values: Tensor, samples: int) -> Tensor:
        if samples == self._size:
            return values
        _check_rows("takes", values, samples)
        return torch.cat([values, values[:1].expand(self._size - samples, *values.shape[1:])])

    @property
    def _size(self) -> int:
        return max(map(len, self.parts))


class ModelCalled(Exception):
    """Raised when the task calls the model, with the model's input; not an error."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.values = values


class InputProbe(nn.Module):
    """A stand-in for the model that raises ModelCalled with its input."""

    def forward(self, *given: object, **named: object) -> Tensor:
        tensor = given[0] if len(given) == 1 and not named else None
        if not isinstance(tensor, Tensor):
            raise ValueError(
                "pipeline: the task calls the model with other things than one tensor; put all "
                "that the first layer needs into one"
            )
        raise ModelCalled(tensor.detach())


class OutputStub(nn.Module):
    """A stand-in for the model that returns the pipeline's output."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.outputs = [output]

    def forward(self, *given: object, **named: object) -> Tensor:
        if not self.outputs:
            raise ValueError(
                "pipeline: the task calls the model twice for a batch; call it once, or choose "
                "another strategy"
            )
        return self.outputs.pop()


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's generators within this context; restore their states on exit."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def _check_rows(does: str, values: Tensor, samples: int) -> None:
    rows = len(values) if values.ndim else 0
    if rows != samples:
        raise ValueError(
            f"pipeline: for {samples} samples the model {does} a tensor of shape "
            f"{tuple(values.shape)}; put samples along the first dimension, or make accumulate "
            "divide the batch and the number of samples"
        )
