"""The states of a rank's random generators, for checkpoints in the middle of a step.

At the start of a step the states are derived from the seed (randomness.py); later they depend on
all numbers drawn since. Generators that a task creates for itself are not included.
"""

import random
import sys
from collections.abc import Mapping
from typing import Any

import torch


def states(device: torch.device) -> dict[str, Any]:
    """Return the states for Python, torch (CPU and this rank's GPU) and, if imported, numpy."""
    saved: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if device.type == "cuda":
        saved["cuda"] = torch.cuda.get_rng_state(device)
    if numpy := sys.modules.get("numpy"):
        kind, words, *rest = numpy.random.get_state()
        saved["numpy"] = (kind, words.tolist(), *rest)
    return saved


def restore(saved: Mapping[str, Any], device: torch.device) -> None:
    """Set the generators to these states; a generator without a saved state stays as it is."""
    random.setstate(saved["python"])
    torch.set_rng_state(saved["torch"])
    if device.type == "cuda" and "cuda" in saved:
        torch.cuda.set_rng_state(saved["cuda"], device)
    if "numpy" in saved and (numpy := sys.modules.get("numpy")):
        numpy.random.set_state(saved["numpy"])
