"""Construction of a trial's optimizer, by its name in the spec.

Sources: AdamW, Loshchilov & Hutter (2019); SGD with momentum, Sutskever et al. (2013); LARS and
LAMB, see their files; Adafactor, Shazeer & Stern (2018), as torch has it; Muon, Jordan et al.,
Muon: An Optimizer for Hidden Layers in Neural Networks (2024), with the learning rates of Liu et
al., Muon is Scalable for LLM Training (2025), section 2.2.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from trainables.optim.chained import Chained
from trainables.optim.groups import hidden_matrices, split
from trainables.optim.lamb import Lamb
from trainables.optim.lars import Lars

OptimizerName = Literal["adamw", "sgd", "lars", "lamb", "adafactor", "muon"]
Groups = list[dict[str, Any]]


@dataclass(frozen=True)
class OptimizerOptions:
    """The optimizer's options in a spec; other constants are those of the papers."""

    name: OptimizerName
    lr: float
    weight_decay: float
    momentum: float  # of sgd and lars
    layer_decay: float  # 1: every layer learns at lr


def build(model: nn.Module, options: OptimizerOptions) -> torch.optim.Optimizer:
    """Build the optimizer over the trained weights of a sharded model.

    Raises:
        ValueError: no weight is trained, or Adafactor would train weights that ranks share.
    """
    groups = split(model, options.lr, options.weight_decay, options.layer_decay)
    weights = [weight for group in groups for weight in group["params"]]
    if not weights:
        raise ValueError(
            f"{type(model).__name__} has no parameter with requires_grad; leave some unfrozen"
        )
    match options.name:
        case "adamw":
            return _adamw(groups)
        case "sgd":
            return torch.optim.SGD(groups, momentum=options.momentum)
        case "lars":
            return Lars(groups, options.lr, options.momentum, options.weight_decay)
        case "lamb":
            return Lamb(groups, options.lr, options.weight_decay)
        case "adafactor":
            return _adafactor(groups, weights)
        case "muon":
            return _muon(groups, model)


def _adamw(groups: Groups) -> torch.optim.Optimizer:
    # Torch has one kernel for the step on such weights, DTensors included.
    fused = all(
        weight.is_floating_point() and weight.device.type in ("cuda", "cpu")
        for group in groups
        for weight in group["params"]
    )
    return torch.optim.AdamW(groups, fused=fused)


def _muon(groups: Groups, model: nn.Module) -> torch.optim.Optimizer:
    """Return Muon for hidden matrices, with steps as large as AdamW's, and AdamW for the rest."""
    hidden = {id(weight) for weight in hidden_matrices(model)}
    matrices: Groups = []
    others: Groups = []
    for group in groups:
        for chosen, is_hidden in ((matrices, True), (others, False)):
            if part := [w for w in group["params"] if (id(w) in hidden) is is_hidden]:
                chosen.append({**group, "params": part})
    if not matrices:
        raise ValueError(
            f"optimizer muon is for hidden matrices, and {type(model).__name__} has none between "
            "its embeddings and its output layer; choose adamw"
        )
    muon = torch.optim.Muon(matrices, adjust_lr_fn="match_rms_adamw")
    return Chained([muon, _adamw(others)] if others else [muon])


def _adafactor(groups: Groups, weights: list[torch.Tensor]) -> torch.optim.Optimizer:
    # torch 2.13: its row and column means of a DTensor end in "in-place operations that require
    # placement changes are not supported".
    if any(isinstance(weight, DTensor) for weight in weights):
        raise ValueError(
            "optimizer adafactor cannot train weights that ranks share; choose adamw, sgd, lars "
            "or lamb, or the strategy single or ddp"
        )
    return torch.optim.Adafactor(groups)
