"""The weights of K trials as one matrix, and what their optimizers keep; rows go in and out.

A trial's row is laid back into a model and an optimizer of its own where it is saved, so that its
checkpoints are those of a trial alone.

Axes: K trials, P weights of a trial, G groups of the optimizer, C coefficients of its update.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from trainables.batched.optimizers import Optimizer
from trainables.batched.refusals import Unbatchable
from trainables.checkpoints.snapshot import named_parameters
from trainables.fitting.state import TrainingState

ONE = "step"  # what Adam keeps of a weight: how many updates it has had


@dataclass(frozen=True)
class Layout:
    """Where in a row each weight lies: in the order of the optimizer's groups."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    counts: tuple[int, ...]  # weights of each group of the optimizer, by tensors
    held: tuple[str, ...]  # buffers, and weights that are not trained

    @classmethod
    def of(cls, state: TrainingState) -> "Layout":
        """That of a trial."""
        found = list(named_parameters(state.model, state.optimizer))
        trained = {name for name, _ in found}
        frozen = [name for name, _ in state.model.named_parameters() if name not in trained]
        return cls(
            tuple(name for name, _ in found),
            tuple(weight.shape for _, weight in found),
            tuple(len(group["params"]) for group in state.optimizer.param_groups),
            (*frozen, *(name for name, _ in state.model.named_buffers())),
        )

    @property
    def sizes(self) -> list[int]:
        """Elements of each weight."""
        return [shape.numel() for shape in self.shapes]

    @property
    def groups(self) -> list[slice]:
        """The part of a row that each of the optimizer's groups has."""
        ends = [0, *accumulate(self.sizes)]
        firsts = [0, *accumulate(self.counts)]
        return [slice(ends[first], ends[after]) for first, after in pairwise(firsts)]

    def parts(self, w_KP: Tensor) -> list[Tensor]:
        """Each weight of all rows, in its shape; they share the matrix's memory."""
        pieces = w_KP.split(self.sizes, dim=1)
        return [
            piece.view(len(w_KP), *shape) for piece, shape in zip(pieces, self.shapes, strict=True)
        ]


class Stack:
    """What K trials have of tensors; all rows change in an update."""

    def __init__(self, layout: Layout, optimizer: Optimizer, like: Tensor) -> None:
        self.layout, self.optimizer = layout, optimizer
        empty = like.new_empty(0, sum(layout.sizes))
        self.weights_KP = empty
        self.kept = {name: empty for name in optimizer.kept}
        self.held: dict[str, Tensor] = {}

    @torch.no_grad()
    def append(self, state: TrainingState) -> int:
        """A row with what the trial has; returns the updates that its optimizer has made."""
        weights = [weight for _, weight in named_parameters(state.model, state.optimizer)]
        self.weights_KP = _with(self.weights_KP, _flat(weights))
        entries = [state.optimizer.state.get(weight, {}) for weight in weights]
        for name, rows in self.kept.items():
            found = [_value(e, name, w) for e, w in zip(entries, weights, strict=True)]
            self.kept[name] = _with(rows, _flat(found))
        held = _held(state.model)
        for name in self.layout.held:
            value = held[name].detach()
            rows = self.held.get(name, value.new_empty(0, *value.shape))
            self.held[name] = _with(rows, value)
        counts = {float(entry.get(ONE, 0)) for entry in entries}
        if len(counts) > 1:
            raise Unbatchable("its weights have had different numbers of updates; start it afresh")
        return int(counts.pop()) if counts else 0

    @torch.no_grad()
    def keep(self, rows: Sequence[int]) -> None:
        """Leave only these rows."""
        at = torch.tensor(rows, dtype=torch.long, device=self.weights_KP.device)
        self.weights_KP = self.weights_KP[at]
        self.kept = {name: values[at] for name, values in self.kept.items()}
        self.held = {name: values[at] for name, values in self.held.items()}

    @torch.no_grad()
    def step(self, g_KP: Tensor, given_GCK: Tensor) -> None:
        """An update of all rows.

        Args:
            given_GCK: the optimizer's coefficients, by group and trial.
        """
        for span, given_CK in zip(self.layout.groups, given_GCK, strict=True):
            kept = [rows[:, span] for rows in self.kept.values()]
            self.optimizer.step(self.weights_KP[:, span], g_KP[:, span], kept, given_CK[..., None])

    @torch.no_grad()
    def lay(self, row: int, state: TrainingState, updates: int) -> None:
        """Give a trial's own model and optimizer what its row has."""
        weights = [weight for _, weight in named_parameters(state.model, state.optimizer)]
        torch._foreach_copy_(weights, self._row(self.weights_KP, row))
        parts = {name: self._row(rows, row) for name, rows in self.kept.items()}
        groups = [group for group in state.optimizer.param_groups for _ in group["params"]]
        for at, (weight, group) in enumerate(zip(weights, groups, strict=True)):
            kept = {name: values[at].clone() for name, values in parts.items()}
            state.optimizer.state[weight] = self.optimizer.entry(group, updates, kept)
        for name, value in _held(state.model).items():
            if name in self.held:
                value.copy_(self.held[name][row])

    def _row(self, values_KP: Tensor, row: int) -> list[Tensor]:
        return [part[0] for part in self.layout.parts(values_KP[row : row + 1])]


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def _with(rows: Tensor, row: Tensor) -> Tensor:
    return torch.cat([rows, row[None]])


def _value(entry: dict[str, Tensor | None], name: str, weight: Tensor) -> Tensor:
    value = entry.get(name)
    return torch.zeros_like(weight) if value is None else value


def _held(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
