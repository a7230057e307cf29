"""The states of a rank's random generators, for checkpoints amid a step.

At the start of a step they are derived from the seed (randomness.py); amid one they depend on all
that was drawn. Generators that a task keeps for itself are not among them.
"""

import random
import sys
from collections.abc import Mapping
from typing import Any

import torch


def states(device: torch.device) -> dict[str, Any]:
    """Those of Python, torch (CPU and this rank's GPU) and, where it is loaded, numpy."""
    found: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if device.type == "cuda":
        found["cuda"] = torch.cuda.get_rng_state(device)
    if numpy := sys.modules.get("numpy"):
        kind, words, *rest = numpy.random.get_state()
        found["numpy"] = (kind, words.tolist(), *rest)
    return found


def restore(found: Mapping[str, Any], device: torch.device) -> None:
    """Let them go on from these states; one that is not among them stays as it is."""
    random.setstate(found["python"])
    torch.set_rng_state(found["torch"])
    if device.type == "cuda" and "cuda" in found:
        torch.cuda.set_rng_state(found["cuda"], device)
    if "numpy" in found and (numpy := sys.modules.get("numpy")):
        numpy.random.set_state(found["numpy"])
