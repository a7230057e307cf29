"""Pretrained weights that a task loads, and that training leaves frozen.

Checkpoints do not hold them, only a fingerprint of them. So a model of billions of weights that
trains a few millions saves only those, and is resumed on no other base model.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor, nn

ATTRIBUTE = "brought"  # the attribute that marks a module
LOOKS = 64  # values of each tensor in the fingerprint; any other training changes them all


@dataclass(frozen=True)
class FrozenBase:
    """The names of a module's own frozen base weights, and the fingerprint of the whole base."""

    names: frozenset[str]
    fingerprint: str


def mark_frozen_base(model: nn.Module) -> None:
    """Mark the weights that are frozen now as the base: call it after loading, before training.

    A weight unfrozen later counts as trained again.
    """
    mark = fingerprint(model)
    for module in model.modules():
        weights = module.named_parameters(recurse=False, remove_duplicate=False)
        if names := frozenset(name for name, weight in weights if not weight.requires_grad):
            setattr(module, ATTRIBUTE, FrozenBase(names, mark))


def frozen_base_names(model: nn.Module) -> set[str]:
    """Return the names of the base weights that are still frozen."""
    return {
        f"{prefix}.{name}" if prefix else name
        for prefix, module, mark in _sealed_modules(model)
        for name, weight in module.named_parameters(recurse=False, remove_duplicate=False)
        if name in mark.names and not weight.requires_grad
    }


def fingerprints(model: nn.Module) -> list[str]:
    """Return the fingerprints of all base models in this model; usually one or none."""
    return sorted({mark.fingerprint for _, _, mark in _sealed_modules(model)})


def fingerprint(model: nn.Module) -> str:
    """Return a fingerprint of the frozen weights: of their names, shapes, and some values."""
    digest = blake2b(digest_size=8)
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            digest.update(f"{name} {tuple(weight.shape)}".encode())
            digest.update(_sample_values(weight).numpy().tobytes())
    return digest.hexdigest()


def _sealed_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module, FrozenBase]]:
    for prefix, module in model.named_modules(remove_duplicate=False):
        if isinstance(mark := getattr(module, ATTRIBUTE, None), FrozenBase):
            yield prefix, module, mark


def _sample_values(weight: Tensor) -> Tensor:
    if weight.is_meta:  # a memory forecast has shapes only, and saves nothing
        return torch.empty(0, device="cpu")
    flat = weight.detach().flatten()
    return flat[:: max(1, len(flat) // LOOKS)].to("cpu", torch.float64)
