"""What a Task's training needs to go on: weights, optimizer and gradient scaler in one file.

The clock and the schedule are not in it: steps come from the order, learning rates from the
order and the step. Nor are generators: see randomness.py.
"""

from pathlib import Path

import torch
from torch import nn

FILE = "training.pt"


def save_training_state(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
) -> Path:
    """Write the state into a folder, and return the folder."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "optimizer_name": type(optimizer).__name__,
        "scaler": scaler.state_dict(),
    }
    torch.save(state, folder / FILE)
    return folder


def load_training_state(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
) -> None:
    """Load weights, momenta and scale; the optimizer keeps its own learning rate and options.

    Raises:
        ValueError: the checkpoint is of another kind of optimizer.
    """
    # By way of the CPU: the optimizer moves its momenta to the weights, and leaves its counts of
    # steps, which each update would otherwise wait for.
    state = torch.load(folder / FILE, map_location="cpu", weights_only=True)
    wanted, found = type(optimizer).__name__, state["optimizer_name"]
    if found != wanted:
        raise ValueError(
            f"checkpoint {folder} holds the state of {found}, this order trains with {wanted}; "
            "keep the optimizer of the trial that it came from"
        )
    model.load_state_dict(state["model"])
    # load_state_dict brings the old options back; the order's values are the ones that count.
    options = [
        {name: value for name, value in group.items() if name != "params"}
        for group in optimizer.param_groups
    ]
    optimizer.load_state_dict(state["optimizer"])
    for group, own in zip(optimizer.param_groups, options, strict=True):
        group.update(own)
    if scaler.is_enabled() and state["scaler"]:
        scaler.load_state_dict(state["scaler"])
