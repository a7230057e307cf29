"""The weights and optimizer states of K trials, as matrices with a row for each trial.

To save a trial, its row is written back into the trial's own model and optimizer, so that its
checkpoints are those of a trial running alone.

Axes: K trials, P weights of a trial, G groups of the optimizer, C coefficients of its update.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from trainables.checkpoints.snapshot import named_parameters
from trainables.training_state.loop_state import TrainingState
from trainables.vmapped.optimizers import Optimizer
from trainables.vmapped.refusals import Unbatchable

STEP = "step"  # in Adam's state of a weight: the number of its updates


@dataclass(frozen=True)
class Layout:
    """The positions of weights in a row, in the order of the optimizer's groups."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    counts: tuple[int, ...]  # number of tensors in each group of the optimizer
    untrained: tuple[str, ...]  # buffers, and weights that are not trained

    @classmethod
    def of(cls, state: TrainingState) -> "Layout":
        """Return the layout of a trial."""
        named_weights = list(named_parameters(state.model, state.optimizer))
        trained = {name for name, _ in named_weights}
        frozen = [name for name, _ in state.model.named_parameters() if name not in trained]
        return cls(
            tuple(name for name, _ in named_weights),
            tuple(weight.shape for _, weight in named_weights),
            tuple(len(group["params"]) for group in state.optimizer.param_groups),
            (*frozen, *(name for name, _ in state.model.named_buffers())),
        )

    @property
    def sizes(self) -> list[int]:
        """Number of elements of each weight."""
        return [shape.numel() for shape in self.shapes]

    @property
    def groups(self) -> list[slice]:
        """The part of a row that belongs to each of the optimizer's groups."""
        ends = [0, *accumulate(self.sizes)]
        firsts = [0, *accumulate(self.counts)]
        return [slice(ends[first], ends[after]) for first, after in pairwise(firsts)]

    def parts(self, w_KP: Tensor) -> list[Tensor]:
        """Return views of the matrix: each weight of all rows, in its shape."""
        pieces = w_KP.split(self.sizes, dim=1)
        return [
            piece.view(len(w_KP), *shape) for piece, shape in zip(pieces, self.shapes, strict=True)
        ]


class Stack:
    """The tensors of K trials; an update changes all rows."""

    def __init__(self, layout: Layout, optimizer: Optimizer, like: Tensor) -> None:
        self.layout, self.optimizer = layout, optimizer
        empty = like.new_empty(0, sum(layout.sizes))
        self.weights_KP = empty
        self.optimizer_state = {name: empty for name in optimizer.state_names}
        self.untrained: dict[str, Tensor] = {}

    @torch.no_grad()
    def append(self, state: TrainingState) -> int:
        """Add a row with a trial's tensors; return the number of updates that it has made."""
        weights = [weight for _, weight in named_parameters(state.model, state.optimizer)]
        self.weights_KP = _with(self.weights_KP, _flat(weights))
        entries = [state.optimizer.state.get(weight, {}) for weight in weights]
        for name, rows in self.optimizer_state.items():
            states = [_value(e, name, w) for e, w in zip(entries, weights, strict=True)]
            self.optimizer_state[name] = _with(rows, _flat(states))
        untrained = _own_tensors(state.model)
        for name in self.layout.untrained:
            value = untrained[name].detach()
            rows = self.untrained.get(name, value.new_empty(0, *value.shape))
            self.untrained[name] = _with(rows, value)
        counts = {float(entry.get(STEP, 0)) for entry in entries}
        if len(counts) > 1:
            raise Unbatchable("its weights have had different numbers of updates; start it afresh")
        return int(counts.pop()) if counts else 0

    @torch.no_grad()
    def keep(self, rows: Sequence[int]) -> None:
        """Remove all rows but these."""
        index = torch.tensor(rows, dtype=torch.long, device=self.weights_KP.device)
        self.weights_KP = self.weights_KP[index]
        self.optimizer_state = {
            name: values[index] for name, values in self.optimizer_state.items()
        }
        self.untrained = {name: values[index] for name, values in self.untrained.items()}

    @torch.no_grad()
    def step(self, g_KP: Tensor, coefficients_GCK: Tensor) -> None:
        """Update all rows.

        Args:
            given_GCK: the optimizer's coefficients, by group and trial.
        """
        for span, coefficients_CK in zip(self.layout.groups, coefficients_GCK, strict=True):
            optimizer_state = [rows[:, span] for rows in self.optimizer_state.values()]
            self.optimizer.step(
                self.weights_KP[:, span], g_KP[:, span], optimizer_state, coefficients_CK[..., None]
            )

    @torch.no_grad()
    def write_back(self, row: int, state: TrainingState, updates: int) -> None:
        """Copy a row into the trial's own model and optimizer."""
        weights = [weight for _, weight in named_parameters(state.model, state.optimizer)]
        torch._foreach_copy_(weights, self._row(self.weights_KP, row))
        parts = {name: self._row(rows, row) for name, rows in self.optimizer_state.items()}
        groups = [group for group in state.optimizer.param_groups for _ in group["params"]]
        for at, (weight, group) in enumerate(zip(weights, groups, strict=True)):
            optimizer_state = {name: values[at].clone() for name, values in parts.items()}
            state.optimizer.state[weight] = self.optimizer.entry(group, updates, optimizer_state)
        for name, value in _own_tensors(state.model).items():
            if name in self.untrained:
                value.copy_(self.untrained[name][row])

    def _row(self, values_KP: Tensor, row: int) -> list[Tensor]:
        return [part[0] for part in self.layout.parts(values_KP[row : row + 1])]


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def _with(rows: Tensor, row: Tensor) -> Tensor:
    return torch.cat([rows, row[None]])


def _value(entry: dict[str, Tensor | None], name: str, weight: Tensor) -> Tensor:
    value = entry.get(name)
    return torch.zeros_like(weight) if value is None else value


def _own_tensors(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
