"""Forward and backward passes of K trials at once.

The weights of the trials are stacked, and one call of a model computes all trials (torch.func's
vmap over functional_call). Source: "model ensembling" of torch.func's documentation.

Axes: K trials, P weights of a trial, B samples of a batch.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from trainables.data import Batch
from trainables.monitoring.clock import Clock
from trainables.task import Task
from trainables.trainer.forward_backward import ForwardBackward as Alone
from trainables.trainer.per_element import checked
from trainables.vmapped import dropout
from trainables.vmapped.fields import Fields, TensorLabelSmoothing
from trainables.vmapped.refusals import Unbatchable
from trainables.vmapped.stack import Stack

Tallies = dict[str, Tensor]  # by metric: sum and count of each trial's values, (K, 2), float64


class _TaskCall(nn.Module):
    """A model whose forward pass is a method of a task, for functional_call to call."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ask: Callable[[nn.Module, Batch], object], batch: Batch) -> object:
        return ask(self.model, batch)


class VmapForwardBackward:
    """Losses, gradients and metrics of all rows of a stack.

    Args:
        alone: the passes of one of the trials, whose model and data serve for all.
        clock: times the updates of all trials.
    """

    def __init__(self, alone: Alone, clock: Clock) -> None:
        self.dropout_masks = dropout.DropoutMasks()
        self._clock = clock
        model = copy.deepcopy(alone.unwrapped_model)
        dropout.replace(model, self.dropout_masks)
        self._task_call = _TaskCall(model)
        self._data, self._autocast = alone.data, alone.strategy.autocast
        self._looked_at = alone.looked_at
        self._smoothing = True  # until a call has shown that losses read no differing field

    def set_tasks(self, tasks: Sequence[Task], like: Tensor) -> None:
        """Set the tasks of the rows, in their order."""
        self._fields, self._smoothing = Fields(tasks, like), True

    def gradients(self, stack: Stack, at_KB: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of each row's mean loss, (K, P), and the tally of losses, (K, 2)."""
        with self._clock.phase("data"):
            batch = tuple(column[at_KB] for column in self._columns("train"))
        with self._clock.phase("forward"):
            parts, losses_K = self.losses(stack, batch)
        with self._clock.phase("backward"):
            g_KP = self.differentiate(stack, parts, losses_K)
        return g_KP, _tally(losses_K.detach())

    def losses(self, stack: Stack, batch: Batch) -> tuple[list[Tensor], Tensor]:
        """Return the weights as autograd leaves, and each row's losses on its own samples."""
        parts = [part.detach().requires_grad_() for part in stack.layout.parts(stack.weights_KP)]
        self._task_call.train()
        losses_K = self._call_task("compute_losses", stack, parts, (batch, 0))
        assert isinstance(losses_K, Tensor)
        self._check("compute_losses", {"": losses_K}, tuple(column[0] for column in batch))
        return parts, losses_K

    def differentiate(self, stack: Stack, parts: Sequence[Tensor], losses_K: Tensor) -> Tensor:
        """Return the gradients, (K, P), of each row's mean loss from the results of `losses`."""
        count = max(losses_K[0].numel(), 1)
        gradients = torch.autograd.grad(
            losses_K, parts, torch.full_like(losses_K, 1 / count), allow_unused=True
        )
        for name, gradient in zip(stack.layout.names, gradients, strict=True):
            if gradient is None:
                raise Unbatchable(f"{name} takes no part in the losses; freeze it, or use it")
        return torch.cat([tensor.flatten(1) for tensor in gradients], dim=1)

    @torch.no_grad()
    def evaluate(self, stack: Stack, at_B: Tensor) -> Tallies:
        """Return the tally of each metric over these validation samples."""
        batch = tuple(column[at_B] for column in self._columns("validation"))
        self._task_call.eval()
        parts = stack.layout.parts(stack.weights_KP)
        values = self._call_task("evaluate", stack, parts, (batch, None))
        assert isinstance(values, Mapping)
        self._check("evaluate", values, batch)
        return {name: _tally(value) for name, value in values.items()}

    def _check(self, method: str, values: Mapping[str, Tensor], batch: Batch) -> None:
        """Check the first trial's values for a batch."""
        first = {name: value[0] for name, value in values.items()}
        checked(self._fields.task, method, first, batch, self._looked_at)

    def _columns(self, name: str) -> Batch:
        columns: Batch = getattr(self._data, name).columns
        return columns

    def _call_task(
        self, name: str, stack: Stack, parts: Sequence[Tensor], batch: tuple[Batch, int | None]
    ) -> object:
        """Return the result of a method of the task for each row."""
        fields = self._fields
        tensors = {
            f"model.{key}": value
            for key, value in (
                *zip(stack.layout.names, parts, strict=True),
                *stack.untrained.items(),
            )
        }

        def call_row(
            tensors: dict[str, Tensor], values: Mapping[str, Tensor], batch: Batch
        ) -> object:
            fields.take(values)
            return functional_call(self._task_call, tensors, (getattr(fields.task, name), batch))

        call_rows = vmap(call_row, in_dims=(0, 0, batch[1]), randomness="different")
        with (
            self._explain_vmap_errors(name),
            self._autocast(),
            TensorLabelSmoothing() if self._smoothing else nullcontext(),
        ):
            results = call_rows(tensors, fields.values_K, batch[0])
        self._smoothing = self._smoothing and bool(fields.read_fields)
        return results

    @contextmanager
    def _explain_vmap_errors(self, name: str) -> Iterator[None]:
        """Name the task's method in errors of vmap, and the fields that it read."""
        try:
            yield
        except (RuntimeError, TypeError) as error:
            read = sorted(self._fields.read_fields)
            if "vmap" not in f"{error}" and not read:
                raise
            hint = f" (it reads {', '.join(read)}, of which each has its own)" if read else ""
            raise Unbatchable(
                f"{type(self._fields.task).__name__}.{name} cannot be computed for several trials "
                f"at once{hint}: {f'{error}'.splitlines()[0]}"
            ) from error


def _tally(values_K: Tensor) -> Tensor:
    flat = values_K.flatten(1)
    total = flat.sum(dim=1, dtype=torch.float64)
    return torch.stack([total, torch.full_like(total, flat.shape[1])], dim=1)
