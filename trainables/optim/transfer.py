"""A parametrization whose best learning rate stays where it is while the model grows.

`Task.scale_from` names a smaller task, the base. Options are given for the base, and hold for the
larger task with these changes, where n_in and n_out are the ratios of a weight's fan-in and fan-out
to those of the base's weight, and d and b the ratios of the blocks and of the batch:

    standard deviation of initial values    base * min(1, sqrt(n_out / n_in)) / sqrt(n_in)
    learning rate        AdamW              base * sqrt(b) / n_in
                         SGD                base * b * n_out / n_in
                         Muon               base * sqrt(b) * sqrt(n_out / n_in) / a
    weight decay                            so that its product with the width's factor stays
    epsilon of AdamW                        base / (n_out * d in blocks)

where a is what torch's Muon makes of the weight's shape itself, over what it makes of the base's.
So hidden matrices have n_in and n_out, input layers, embeddings, biases and norms n_out alone, and
output layers n_in alone. Nothing in the forward pass changes, but a residual branch must be
multiplied by 1 / d: `x + branch(x) / d`; that is the task's own line, for each of the optimizers.
With more tokens the best rate moves by no rule that holds everywhere: the section `scale` of a
sweep fits how (searchers/size_law.py).

Sources: width, Yang et al., Tensor Programs V (2022), table 3, the variant without multipliers;
initial values and SGD for any shape, Yang, Simon & Bernstein, A Spectral Condition for Feature
Learning (2023), parametrization 1; Muon, whose updates are orthogonal, gets the size that the same
condition asks by the learning rate alone, Bernstein & Newhouse, Modular Duality in Deep Learning
(2024); depth, epsilon and weight decay, Dey et al., CompleteP (2025), table 1 with alpha 1, where
Mlodozeniec et al., Complete(d)P (2025), have no output multiplier either; the batch, Malladi et al.
(2022) for Adam, which Muon follows, and Goyal et al. (2017) for SGD, see schedules.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from math import prod, sqrt
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from trainables.blocks import blocks
from trainables.optim.chained import Chained, name_of, parts_of
from trainables.optim.groups import NORMS
from trainables.optim.schedules import ScalingRule, scale_lr
from trainables.randomness import preserved

if TYPE_CHECKING:
    from trainables.task import Task

INPUTS_FIRST = (nn.Embedding, nn.EmbeddingBag, _ConvTransposeNd)  # axes of their weights
OUTPUTS_FIRST = (nn.Linear, _ConvNd)
SCALED = (torch.optim.AdamW, torch.optim.SGD, torch.optim.Muon)
CONSTANT = 1e-8  # below this standard deviation, initial values are all equal


@dataclass(frozen=True)
class Growth:
    """How many times larger a weight is than its counterpart in the base's model."""

    fan_in: float
    fan_out: float
    depth: float  # blocks of the models; 1 for weights outside blocks

    @property
    def initial(self) -> float:
        """The factor on the standard deviation of initial values."""
        return min(1.0, sqrt(self.fan_out / self.fan_in)) / sqrt(self.fan_in)


def scale_weights(task: "Task", model: nn.Module) -> dict[str, Growth]:
    """Scale initial values of a model that is not sharded yet; return each weight's growth by name.

    The base's model is built for its standard deviations, and changes no random numbers. Weights
    as large as in the base keep their values, as do constant ones and those on the meta device.

    Returns:
        Empty if the task has no base.

    Raises:
        ValueError: a weight has no counterpart in the base, or is shared by layers of two kinds.
    """
    base_task = task.scale_from()
    if base_task is None:
        return {}
    with preserved():
        base = base_task.build_model()
    counterparts = _counterparts(model, base)
    growths: dict[str, Growth] = {}
    of_weight: dict[int, Growth] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        small, depth = counterparts[name]
        owner = model.get_submodule(name.rpartition(".")[0])
        growth = Growth(*_fans(owner, weight, small), depth)
        if of_weight.setdefault(id(weight), growth) != growth:
            raise ValueError(
                f"scale_from: {name} is shared by layers whose learning rates scale differently, "
                "such as an embedding and the output; give each its own weight"
            )
        growths[name] = growth
    for name, weight in model.named_parameters():
        small, depth = counterparts[name]
        if (weight.shape != small.shape or depth != 1) and not weight.is_meta:
            _match(weight, small, growths[name].initial)
    return growths


def scale_optimizer(
    optimizer: torch.optim.Optimizer,
    model: nn.Module,
    growths: Mapping[str, Growth],
    task: "Task",
    lr_scaling: ScalingRule,
) -> None:
    """Split a new optimizer's groups by growth, and scale their rates, decay and epsilon.

    Args:
        model: may be sharded, but has the names of `growths`; empty growths change nothing.

    Raises:
        ValueError: the optimizer has other parts than AdamW, SGD and Muon, or lr_scaling follows
            the batch too.
    """
    base_task = task.scale_from()
    if base_task is None:
        return
    for part in parts_of(optimizer):
        if not isinstance(part, SCALED):
            raise ValueError(
                f"scale_from: how {name_of(part)} scales with the model is not known; choose "
                "AdamW, SGD or Muon (training.optimizer: adamw, sgd or muon), or return None"
            )
    if lr_scaling != "none":
        raise ValueError(
            f"training.lr_scaling is {lr_scaling}, but the learning rate follows the batch of "
            "scale_from's task already; leave lr_scaling out"
        )
    names = {id(weight): name for name, weight in model.named_parameters()}
    by_weight = {id(weight): growths[names[id(weight)]] for weight in model.parameters()}
    for part in parts_of(optimizer):
        rule: ScalingRule = "linear" if isinstance(part, torch.optim.SGD) else "sqrt"
        batch = scale_lr(rule, task.batch, base_task.batch)
        parts = [_split(part, group, by_weight, batch) for group in part.param_groups]
        part.param_groups[:] = chain.from_iterable(parts)
    if isinstance(optimizer, Chained):
        optimizer.gather()


def _split(
    optimizer: torch.optim.Optimizer,
    group: dict[str, Any],
    growths: Mapping[int, Growth],
    batch: float,
) -> list[dict[str, Any]]:
    """Return a group in parts of equal growth, each with its own rate, decay and epsilon."""
    alike: dict[tuple[Growth, float], list[Tensor]] = {}
    for weight in group["params"]:
        growth = growths[id(weight)]
        alike.setdefault((growth, _width_factor(optimizer, weight, growth)), []).append(weight)
    parts = []
    for (growth, width), weights in alike.items():
        scaled = {"lr": group["lr"] * batch * width, "weight_decay": group["weight_decay"] / width}
        if isinstance(optimizer, torch.optim.AdamW):
            scaled["eps"] = group["eps"] / (growth.fan_out * growth.depth)
        parts.append({**group, **scaled, "params": weights})
    return parts


def _width_factor(optimizer: torch.optim.Optimizer, weight: Tensor, growth: Growth) -> float:
    """Return the factor of the table on a weight's learning rate, but for the batch."""
    if isinstance(optimizer, torch.optim.AdamW):
        return 1.0 / growth.fan_in
    if isinstance(optimizer, torch.optim.SGD):
        return growth.fan_out / growth.fan_in
    rows, columns = weight.shape
    own, base = rows / columns, rows / growth.fan_out / (columns / growth.fan_in)
    adjusted = max(1.0, own) / max(1.0, base)
    if optimizer.param_groups[0]["adjust_lr_fn"] == "match_rms_adamw":
        adjusted = max(rows, columns) / max(rows / growth.fan_out, columns / growth.fan_in)
    return sqrt(growth.fan_out / growth.fan_in / adjusted)


def _counterparts(model: nn.Module, base: nn.Module) -> dict[str, tuple[Tensor, float]]:
    """Return the base's weight for each weight of the model, and the ratio of their blocks."""
    small = dict(base.named_parameters(remove_duplicate=False))
    own, theirs = list(blocks(model)), list(blocks(base))
    if len(own) != len(theirs):
        _check_alike(base, theirs)
    pairs: dict[str, tuple[Tensor, float]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        at = next((at for at, block in enumerate(own) if name.startswith(f"{block}.")), None)
        in_base = name
        if at is not None and theirs:
            in_base = theirs[at * len(theirs) // len(own)] + name.removeprefix(own[at])
        if in_base not in small or small[in_base].ndim != weight.ndim:
            raise ValueError(
                f"scale_from: {name} has no counterpart {in_base} with {weight.ndim} dimensions "
                "in the base's model; let the base differ in sizes and in the number of equal "
                "blocks alone"
            )
        depth = 1.0 if at is None else len(own) / len(theirs)
        pairs[name] = small[in_base], depth
    return pairs


def _check_alike(base: nn.Module, names: list[str]) -> None:
    shapes = {
        tuple((name, weight.shape) for name, weight in base.get_submodule(block).named_parameters())
        for block in names
    }
    if len(shapes) != 1:
        raise ValueError(
            "scale_from: the models have different numbers of blocks, and the base's blocks differ "
            "from each other; put equal blocks alone into an nn.ModuleList, or keep the depth"
        )


def _fans(owner: nn.Module, weight: Tensor, small: Tensor) -> tuple[float, float]:
    """Return the ratios of a weight's fan-in and fan-out to those of its counterpart.

    In other layers than torch's, a weight that grows along its last axes alone is taken for one
    that is added to activations, such as an embedding of positions.
    """
    grown = [size / base for size, base in zip(weight.shape, small.shape, strict=True)]
    if weight.ndim < 2 or isinstance(owner, NORMS):
        return 1.0, prod(grown)
    first, rest = grown[0], prod(grown[1:])
    if isinstance(owner, INPUTS_FIRST):
        return first, rest
    if not isinstance(owner, OUTPUTS_FIRST) and first == 1:
        return 1.0, rest
    return rest, first


def _match(weight: Tensor, small: Tensor, factor: float) -> None:
    """Scale initial values to `factor` times the standard deviation of the base's."""
    base, own = (float(values.detach().double().std(correction=0)) for values in (small, weight))
    if min(base, own) > CONSTANT:
        with torch.no_grad():
            weight.mul_(factor * base / own)
