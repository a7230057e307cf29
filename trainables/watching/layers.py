"""Each layer's gradient norm, and how far an update moves it, relative to its weights.

A layer whose update is a much larger share of its weights than the others' (some 1e-3 is usual)
is the first to diverge; one far below does not learn.
Source: the ratio of You, Gitman & Ginsburg, Large Batch Training of Convolutional Networks
(2017), section 4: |lr gradient| / |weights|; here for what the optimizer really did.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor, nn

from trainables.optim.norms import anywhere, part, settle, squares, sums

MOST = 50  # layers that are reported
WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


class Layers:
    """Looks at one update of a model: before the optimizer's step, and after.

    It holds a copy of the weights in between, and waits for the device once, at the end. Where
    weights are sharded, all ranks must look at the same updates.
    """

    def __init__(self, model: nn.Module, most: int = MOST) -> None:
        self._model, self._most = model, most
        self._before: Before | None = None

    @torch.no_grad()
    def before_step(self) -> None:
        """Measure the gradients as they are now (so before clipping), and keep the weights."""
        # Asked anew each time: sharding puts other parameters in the place of a model's first.
        named = {
            name: weight for name, weight in self._model.named_parameters() if weight.requires_grad
        }
        weights = list(named.values())
        gradients = [
            torch.zeros_like(part(weight)) if weight.grad is None else part(settle(weight))
            for weight in weights
        ]
        kept = [part(weight).clone() for weight in weights]
        layers = merged(list(named), self._most)
        self._before = Before(layers, weights, squares(gradients), kept)

    @torch.no_grad()
    def after_step(self) -> dict[str, float]:
        """`grad_norm/LAYER`, and `update_ratio/LAYER` unless all its weights were zero.

        Raises:
            RuntimeError: before_step was not called.
        """
        if self._before is None:
            raise RuntimeError("layers: after_step without before_step; call that one first")
        before, self._before = self._before, None
        if not before.kept:
            return {}
        weights_P = squares(before.kept)
        torch._foreach_sub_(before.kept, [part(weight) for weight in before.weights])
        own_PK = torch.stack([before.gradients_P, weights_P, squares(before.kept)], 1)
        kinds = torch.stack(sums(own_PK.unbind(), before.weights, anywhere), 1).tolist()
        found: dict[str, float] = {}
        for layer, places in before.layers.items():
            gradient, weight, change = (sqrt(sum(kind[at] for at in places)) for kind in kinds)
            found[f"grad_norm/{layer}"] = gradient
            if weight > 0:
                found[f"update_ratio/{layer}"] = change / weight
        return found


@dataclass(frozen=True)
class Before:
    """What is known of P parameters before a step."""

    layers: dict[str, list[int]]  # the places of each one's parameters
    weights: list[nn.Parameter]  # the parameters themselves, which the step changes
    gradients_P: Tensor  # squared norms, of this rank's parts
    kept: list[Tensor]  # copies of this rank's parts of the weights


def merged(parameters: Sequence[str], most: int) -> dict[str, list[int]]:
    """At most `most` layers, each with the places of its parameters.

    A layer is a module that owns parameters. Where those are too many, they are cut to a shorter
    prefix, or else runs of numbered neighbours (a network's blocks) are put together.
    """
    modules = [_module(name) for name in parameters]
    for depth in range(max(map(len, modules), default=0), 0, -1):
        cut = [module[:depth] for module in modules]
        runs = _siblings(list(dict.fromkeys(cut)))
        for length in range(1, max(map(len, runs)) + 1):
            names = _named(runs, length)
            if len(set(names.values())) <= most:
                return _places([names[module] for module in cut])
    return _places(["all"] * len(modules))


def _places(names: Sequence[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(names):
        places[name].append(place)
    return dict(places)


def _module(parameter: str) -> tuple[str, ...]:
    """The path of the module that owns it, without what wrappers add."""
    path = tuple(part for part in parameter.split(".")[:-1] if part not in WRAPPERS)
    return path or ("root",)


def _siblings(modules: Sequence[tuple[str, ...]]) -> list[list[tuple[str, ...]]]:
    """Runs of numbered modules of one parent; each other module is a run of its own."""
    runs: list[list[tuple[str, ...]]] = []
    for module in modules:
        last = runs[-1][-1] if runs else ()
        near = last[:-1] == module[:-1] and last[-1:] != () and last[-1].isdigit()
        if near and module[-1].isdigit():
            runs[-1].append(module)
        else:
            runs.append([module])
    return runs


def _named(runs: Sequence[Sequence[tuple[str, ...]]], length: int) -> dict[tuple[str, ...], str]:
    """Names in which `length` neighbours of a run share one, such as blocks.0-2."""
    names: dict[tuple[str, ...], str] = {}
    for run in runs:
        for start in range(0, len(run), length):
            part = run[start : start + length]
            name = ".".join(part[0]) + (f"-{part[-1][-1]}" if len(part) > 1 else "")
            names.update(dict.fromkeys(part, name))
    return names
