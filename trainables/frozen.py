"""Weights that a task brings from elsewhere, and that training leaves as they are.

No checkpoint holds them: it says by a fingerprint on which ones it rests. So a model of billions of
weights that learns a few millions keeps those only, and goes on upon no other model.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor, nn

SEAL = "brought"  # the attribute of a module that says so
LOOKS = 64  # values of each tensor that make the fingerprint; another training changes them all


@dataclass(frozen=True)
class Seal:
    """Which of a module's own weights were brought, and the fingerprint of all that were."""

    names: frozenset[str]
    fingerprint: str


def seal(model: nn.Module) -> None:
    """Take what is frozen now as brought: call it once weights are loaded, before training.

    A weight that is unfrozen later counts as trained again.
    """
    mark = fingerprint(model)
    for module in model.modules():
        own = module.named_parameters(recurse=False, remove_duplicate=False)
        if names := frozenset(name for name, weight in own if not weight.requires_grad):
            setattr(module, SEAL, Seal(names, mark))


def brought(model: nn.Module) -> set[str]:
    """The names of the weights that were brought and are frozen."""
    return {
        f"{prefix}.{name}" if prefix else name
        for prefix, module, mark in _sealed(model)
        for name, weight in module.named_parameters(recurse=False, remove_duplicate=False)
        if name in mark.names and not weight.requires_grad
    }


def fingerprints(model: nn.Module) -> list[str]:
    """One for each model that was sealed; mostly one, or none."""
    return sorted({mark.fingerprint for _, _, mark in _sealed(model)})


def fingerprint(model: nn.Module) -> str:
    """What tells frozen weights from others: their names, shapes, and some values of each."""
    digest = blake2b(digest_size=8)
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            digest.update(f"{name} {tuple(weight.shape)}".encode())
            digest.update(_sample(weight).numpy().tobytes())
    return digest.hexdigest()


def _sealed(model: nn.Module) -> Iterator[tuple[str, nn.Module, Seal]]:
    for prefix, module in model.named_modules(remove_duplicate=False):
        if isinstance(mark := getattr(module, SEAL, None), Seal):
            yield prefix, module, mark


def _sample(weight: Tensor) -> Tensor:
    if weight.is_meta:  # a forecast of the memory has shapes alone, and saves nothing
        return torch.empty(0, device="cpu")
    flat = weight.detach().flatten()
    return flat[:: max(1, len(flat) // LOOKS)].to("cpu", torch.float64)
