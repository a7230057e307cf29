"""Gradual unfreezing: layers begin to learn one after the other, first a new head, then its base.

Before its turn a layer's learning rate is 0, but its gradient is computed: DDP and FSDP exchange
the same gradients from the first update to the last, the optimizer's moments are warm when the
layer's turn comes, and no weight changes its place in a checkpoint. The price is the time of the
complete backward pass, and that `clip` bounds a norm in which waiting layers count.

Source: Howard & Ruder, Universal Language Model Fine-tuning (2018), section 3.3.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

BEGINS = "begins"  # of a parameter group: the share of the trial at which it starts to learn


def staged(
    model: nn.Module, groups: Iterable[Mapping[str, Any]], begins: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Split parameter groups by when their weights begin to learn.

    Args:
        groups: such as those of optim.groups.split.
        begins: patterns of names of weights, with * and ?, to shares of the trial in [0, 1); the
            first that fits counts, and a weight that fits none learns from the start.

    Raises:
        ValueError: a pattern fits no trained weight, or a share is outside [0, 1).
    """
    names = {
        id(parameter): name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    for pattern, share in begins.items():
        if not 0 <= share < 1:
            raise ValueError(f"begins: {pattern!r} is {share}; give 0 or more, below 1")
        if not any(fnmatchcase(name, pattern) for name in names.values()):
            near = get_close_matches(pattern, names.values(), n=3, cutoff=0.0)
            raise ValueError(
                f"begins: {pattern!r} fits no trained weight; there are {', '.join(near) or 'none'}"
            )
    split_groups: list[dict[str, Any]] = []
    for group in groups:
        parts: dict[float, list[nn.Parameter]] = {}
        for weight in group["params"]:
            fits = (
                begin
                for name_pattern, begin in begins.items()
                if fnmatchcase(names[id(weight)], name_pattern)
            )
            parts.setdefault(next(fits, 0.0), []).append(weight)
        split_groups += [
            {**group, "params": parts[begin], BEGINS: begin} for begin in sorted(parts)
        ]
    return split_groups
