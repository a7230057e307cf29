"""The samples of one way through a pipeline, and what a task makes of them at its two ends.

A task calls the model in the middle of a method. The first rank leaves the method at that call,
with what the model is given; the last one goes through it with a stand-in for the model, which
gives what has come out of the pipeline.

Axes: B samples of a micro-batch.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from trainables.data import Batch, Source
from trainables.parallel.stages import Shape
from trainables.randomness import derive

T = TypeVar("T")


@dataclass(frozen=True)
class MicroBatches:
    """Samples in parts; all that pass through the pipeline together have to be of one size.

    A part that is smaller is filled up with its first sample, and one that is empty with the whole
    first part; what comes of that is cut off before it counts.
    """

    source: Source
    parts: Sequence[Tensor]  # positions of samples; none is empty
    number: int  # of micro-batches, with those that are empty
    seed: int  # equal on all ranks: both ends draw the same, as for a mask over tokens
    training: bool

    @property
    def shape(self) -> Shape:
        """Which schedule they need."""
        return Shape(self.training, self.number, self._size)

    def inputs(self, compute: Callable[[nn.Module, Batch], T]) -> list[Tensor]:
        """What the task gives the model for each micro-batch.

        Raises:
            ValueError: that is not one tensor, or not one row a sample where rows are missing.
        """
        found = []
        for number, at_B in enumerate(self.parts):
            try:
                self._carry(compute, number, Probe())
            except Asked as asked:
                values = asked.values
            else:
                raise ValueError("pipeline: the task did not call the model; let it, once a batch")
            found.append(self._filled(values, len(at_B)))
        return found + found[:1] * (self.number - len(found))

    def carry(self, compute: Callable[[nn.Module, Batch], T], number: int, output: Tensor) -> T:
        """What the task makes of the model's output for a micro-batch that is not empty."""
        samples = len(self.parts[number])
        if samples < self._size:
            _check_rows("gives", output, self._size)
            output = output[:samples]
        return self._carry(compute, number, StandIn(output))

    def _carry(self, compute: Callable[[nn.Module, Batch], T], number: int, model: nn.Module) -> T:
        batch = self.source.batch(self.parts[number])
        with drawing(derive(self.seed, "part", number), batch[0].device):
            return compute(model.train(self.training), batch)

    def _filled(self, values: Tensor, samples: int) -> Tensor:
        if samples == self._size:
            return values
        _check_rows("takes", values, samples)
        return torch.cat([values, values[:1].expand(self._size - samples, *values.shape[1:])])

    @property
    def _size(self) -> int:
        return max(map(len, self.parts))


class Asked(Exception):
    """The model was called; not an error."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.values = values


class Probe(nn.Module):
    """In a model's place: leaves with what it is given."""

    def forward(self, *given: object, **named: object) -> Tensor:
        values = given[0] if len(given) == 1 and not named else None
        if not isinstance(values, Tensor):
            raise ValueError(
                "pipeline: the task calls the model with other things than one tensor; put all "
                "that the first layer needs into one"
            )
        raise Asked(values.detach())


class StandIn(nn.Module):
    """In a model's place: gives what the pipeline made of the input."""

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
def drawing(seed: int, device: torch.device) -> Iterator[None]:
    """Within it, torch's generators begin from a seed; they then go on as they were before."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def _check_rows(does: str, values: Tensor, samples: int) -> None:
    found = len(values) if values.ndim else 0
    if found != samples:
        raise ValueError(
            f"pipeline: for {samples} samples the model {does} a tensor of shape "
            f"{tuple(values.shape)}; put samples along the first dimension, or make accumulate "
            "divide the batch and the number of samples"
        )
