"""Each layer's gradient norm, and the size of its update relative to its weights.

A layer whose update is a much larger share of its weights than in other layers (1e-3 is usual) is
the first to diverge; a layer with a far smaller share does not learn.
Source: the ratio of You, Gitman & Ginsburg, Large Batch Training of Convolutional Networks
(2017), section 4: |lr gradient| / |weights|; here for the optimizer's actual change.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor, nn

from trainables.optim.norms import is_sharded, local_part, sharded_gradient, squared_norms, sums

MOST = 50  # layers in a report
WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


class Layers:
    """Measurements of one update of a model, before and after the optimizer's step.

    A copy of the weights is held in between, and the device is waited for once, at the end. If
    weights are sharded, all ranks must measure the same updates.
    """

    def __init__(self, model: nn.Module, most: int = MOST) -> None:
        self._model, self._most = model, most
        self._before: Before | None = None

    @torch.no_grad()
    def before_step(self) -> None:
        """Measure the current gradients (so before clipping), and copy the weights."""
        # Looked up each time, since sharding replaces a model's first parameters.
        named = {
            name: weight for name, weight in self._model.named_parameters() if weight.requires_grad
        }
        weights = list(named.values())
        gradients = [
            torch.zeros_like(local_part(weight))
            if weight.grad is None
            else local_part(sharded_gradient(weight))
            for weight in weights
        ]
        copies = [local_part(weight).clone() for weight in weights]
        layers = merged(list(named), self._most)
        self._before = Before(layers, weights, squared_norms(gradients), copies)

    @torch.no_grad()
    def after_step(self) -> dict[str, float]:
        """Return `grad_norm/LAYER`, and `update_ratio/LAYER` unless all its weights were zero."""
        assert self._before is not None, "before_step comes first"
        before, self._before = self._before, None
        if not before.kept:
            return {}
        weights_P = squared_norms(before.kept)
        torch._foreach_sub_(before.kept, [local_part(weight) for weight in before.weights])
        squares_PK = torch.stack([before.gradients_P, weights_P, squared_norms(before.kept)], 1)
        rows = torch.stack(sums(squares_PK.unbind(), before.weights, is_sharded), 1).tolist()
        values: dict[str, float] = {}
        for layer, indices in before.layers.items():
            gradient, weight, change = (sqrt(sum(row[index] for index in indices)) for row in rows)
            values[f"grad_norm/{layer}"] = gradient
            if weight > 0:
                values[f"update_ratio/{layer}"] = change / weight
        return values


@dataclass(frozen=True)
class Before:
    """Measurements of P parameters before a step."""

    layers: dict[str, list[int]]  # the indices of each layer's parameters
    weights: list[nn.Parameter]  # the parameters themselves, which the step changes
    gradients_P: Tensor  # squared norms, of this rank's parts
    kept: list[Tensor]  # copies of this rank's parts of the weights


def merged(parameters: Sequence[str], most: int) -> dict[str, list[int]]:
    """Merge layers until there are at most `most`, and return the indices of their parameters.

    A layer is a module that owns parameters. If there are too many, their names are cut to a
    shorter prefix, or else runs of numbered neighbours (a network's blocks) are merged.
    """
    paths = [[part for part in name.split(".")[:-1] if part not in WRAPPERS] for name in parameters]
    modules = [tuple(path) or ("root",) for path in paths]
    for depth in range(max(map(len, modules), default=0), 0, -1):
        cut = [module[:depth] for module in modules]
        runs = _numbered_runs(list(dict.fromkeys(cut)))
        for length in range(1, max(map(len, runs)) + 1):
            names = _merged_names(runs, length)
            if len(set(names.values())) <= most:
                return _group_indices([names[module] for module in cut])
    return _group_indices(["all"] * len(modules))


def _group_indices(names: Sequence[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(names):
        places[name].append(place)
    return dict(places)


def _numbered_runs(modules: Sequence[tuple[str, ...]]) -> list[list[tuple[str, ...]]]:
    """Return runs of numbered modules of one parent; each other module is a run of its own."""
    runs: list[list[tuple[str, ...]]] = []
    for module in modules:
        last = runs[-1][-1] if runs else ()
        siblings = last[:-1] == module[:-1] and last[-1:] != () and last[-1].isdigit()
        if siblings and module[-1].isdigit():
            runs[-1].append(module)
        else:
            runs.append([module])
    return runs


def _merged_names(
    runs: Sequence[Sequence[tuple[str, ...]]], length: int
) -> dict[tuple[str, ...], str]:
    """Return names that `length` neighbours of a run share, such as blocks.0-2."""
    names: dict[tuple[str, ...], str] = {}
    for run in runs:
        for start in range(0, len(run), length):
            neighbours = run[start : start + length]
            name = ".".join(neighbours[0]) + (
                f"-{neighbours[-1][-1]}" if len(neighbours) > 1 else ""
            )
            names.update(dict.fromkeys(neighbours, name))
    return names
