"""A checkpoint's weights in a model that a task made: to evaluate, to generate, to merge."""

from pathlib import Path

from torch import nn

from trainables.checkpoints.exporting import weights
from trainables.checkpoints.storing import read
from trainables.frozen import brought, fingerprints


def load_weights(model: nn.Module, folder: Path, ema: bool = False) -> nn.Module:
    """The same model with what a trial learned, whatever strategy it had; `model` is whole.

    Args:
        model: of `build_model`, of a task with the trial's parameters.
        folder: of the trial's checkpoint.
        ema: the averaged weights in place of the trained ones.

    Raises:
        ValueError: the checkpoint is of another model, or rests on other frozen weights.
    """
    source = read(folder)
    base, here = source.values.get("base") or [], fingerprints(model)
    if base != here:
        raise ValueError(
            f"checkpoint {folder} rests on frozen weights of fingerprint {base or 'none'}, but the "
            f"model has {here or 'none'}; build it as the trial's task did"
        )
    found = model.load_state_dict(weights(source, ema), strict=False)
    lacking = sorted({*found.missing_keys} - brought(model)) + found.unexpected_keys
    if lacking:
        raise ValueError(
            f"checkpoint {folder} is of another model: only one of the two has {lacking[0]}; give "
            "the task the trial's parameters"
        )
    return model
