"""Number formats of training, by Lightning's names: `-true` stores so, `-mixed` computes so."""

import torch

from trainables.training import Precision


def stored(precision: Precision) -> torch.dtype:
    """The format of weights, optimizer state and floating-point samples."""
    return torch.float64 if precision == "64-true" else torch.float32


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    """The context for forward passes."""
    computed = torch.float16 if precision == "16-mixed" else torch.bfloat16
    return torch.autocast(device.type, dtype=computed, enabled=precision.endswith("-mixed"))


def scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler:
    """Keeps small float16 gradients from vanishing; passes all others through unchanged."""
    return torch.amp.GradScaler(device.type, enabled=precision == "16-mixed")
