"""Forward and backward passes of K trials at once.

Their weights are stacked, and one call of a model computes all of them (torch.func's vmap over
functional_call). Source: "model ensembling" of torch.func's documentation.

Axes: K trials, P weights of a trial, B samples of a batch.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from trainables.batched import dropout
from trainables.batched.fields import Fields, Smoothing
from trainables.batched.refusals import Unbatchable
from trainables.batched.stack import Stack
from trainables.data import Batch
from trainables.watching.clock import Clock

if TYPE_CHECKING:
    from trainables.fitting.passes import Passes as Alone
    from trainables.task import Task

Tallies = dict[str, Tensor]  # by metric: sum and count of each trial's values, (K, 2), float64


class _Asked(nn.Module):
    """A model with what a task computes by it: the call that functional_call makes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ask: Callable[[nn.Module, Batch], object], batch: Batch) -> object:
        return ask(self.model, batch)


class Passes:
    """Losses and metrics of all rows of a stack.

    Args:
        alone: the passes of one of the trials, whose model and data stand for all.
        clock: of all trials' updates.
    """

    def __init__(self, alone: "Alone", clock: Clock) -> None:
        self.draws = dropout.Draws()
        self._clock = clock
        model = copy.deepcopy(alone.bare)
        dropout.replace(model, self.draws)
        self._asked = _Asked(model)
        self._data, self._autocast = alone.data, alone.autocast
        self._smoothing = True  # until it has been seen that losses read no field that differs

    def place(self, tasks: Sequence["Task"], like: Tensor) -> None:
        """These tasks are in the rows from now on."""
        self._fields, self._smoothing = Fields(tasks, like), True

    def gradients(self, stack: Stack, at_KB: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of each row's mean loss, (K, P), and the tally of its losses, (K, 2)."""
        with self._clock.part("data"):
            batch = tuple(column[at_KB] for column in self._columns("train"))
        with self._clock.part("forward"):
            parts, losses_K = self.losses(stack, batch)
        with self._clock.part("backward"):
            g_KP = self.slopes(stack, parts, losses_K)
        return g_KP, _tally(losses_K.detach())

    def losses(self, stack: Stack, batch: Batch) -> tuple[list[Tensor], Tensor]:
        """Each row's losses on its own samples, and the weights that they depend on."""
        parts = [part.detach().requires_grad_() for part in stack.layout.parts(stack.weights_KP)]
        self._asked.train()
        losses_K = self._ask("compute_losses", stack, parts, (batch, 0))
        assert isinstance(losses_K, Tensor)
        return parts, losses_K

    def slopes(self, stack: Stack, parts: Sequence[Tensor], losses_K: Tensor) -> Tensor:
        """What `losses` gave, differentiated: the gradients of each row's mean loss, (K, P)."""
        count = max(losses_K[0].numel(), 1)
        found = torch.autograd.grad(
            losses_K, parts, torch.full_like(losses_K, 1 / count), allow_unused=True
        )
        for name, gradient in zip(stack.layout.names, found, strict=True):
            if gradient is None:
                raise Unbatchable(f"{name} takes no part in the losses; freeze it, or use it")
        return torch.cat([each.flatten(1) for each in found], dim=1)

    @torch.no_grad()
    def evaluate(self, stack: Stack, at_B: Tensor) -> Tallies:
        """The tally of each metric over these validation samples."""
        batch = tuple(column[at_B] for column in self._columns("validation"))
        self._asked.eval()
        parts = stack.layout.parts(stack.weights_KP)
        values = self._ask("evaluate", stack, parts, (batch, None))
        assert isinstance(values, Mapping)
        return {name: _tally(value) for name, value in values.items()}

    def _columns(self, name: str) -> Batch:
        columns: Batch = getattr(self._data, name).columns
        return columns

    def _ask(
        self, name: str, stack: Stack, parts: Sequence[Tensor], batch: tuple[Batch, int | None]
    ) -> object:
        """What a method of the task gives for each row."""
        fields = self._fields
        tensors = {
            f"model.{key}": value
            for key, value in (*zip(stack.layout.names, parts, strict=True), *stack.held.items())
        }

        def one(tensors: dict[str, Tensor], values: Mapping[str, Tensor], batch: Batch) -> object:
            fields.take(values)
            return functional_call(self._asked, tensors, (getattr(fields.task, name), batch))

        every = vmap(one, in_dims=(0, 0, batch[1]), randomness="different")
        with self._named(name), self._autocast(), Smoothing() if self._smoothing else nullcontext():
            found = every(tensors, fields.values_K, batch[0])
        self._smoothing = self._smoothing and bool(fields.read)
        return found

    @contextmanager
    def _named(self, name: str) -> Iterator[None]:
        """Say what it was that cannot be done for several trials."""
        try:
            yield
        except (RuntimeError, TypeError) as error:
            read = sorted(self._fields.read)
            if "vmap" not in f"{error}" and not read:
                raise
            hint = f" (it reads {', '.join(read)}, of which each has its own)" if read else ""
            raise Unbatchable(
                f"{type(self._fields.task).__name__}.{name} cannot be computed for several trials "
                f"at once{hint}: {f'{error}'.splitlines()[0]}"
            ) from error


def _tally(values_K: Tensor) -> Tensor:
    flat = values_K.flatten(1) if values_K.dim() > 1 else values_K[:, None]
    total = flat.sum(dim=1, dtype=torch.float64)
    return torch.stack([total, torch.full_like(total, flat.shape[1])], dim=1)
