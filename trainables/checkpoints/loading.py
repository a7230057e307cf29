"""Loading of a checkpoint's weights into a task's model: to evaluate, to generate, to merge."""

from pathlib import Path

from torch import nn

from trainables.checkpoints.exporting import weights
from trainables.checkpoints.storing import read
from trainables.pretrained import fingerprints, frozen_base_names


def load_weights(model: nn.Module, folder: Path, trained: bool = False) -> nn.Module:
    """Load a trial's weights into an unsharded model, and return it, whatever strategy wrote them.

    They are those that were evaluated: averages, where the training kept some.

    Args:
        model: the result of `build_model` of a task with the trial's parameters.
        folder: the trial's checkpoint.
        trained: load the trained weights, also where averages of them were evaluated.

    Raises:
        ValueError: the checkpoint is of another model, or rests on other frozen weights.
    """
    source = read(folder)
    base, model_base = source.values.get("base") or [], fingerprints(model)
    if base != model_base:
        raise ValueError(
            f"checkpoint {folder} rests on frozen weights of fingerprint {base or 'none'}, but the "
            f"model has {model_base or 'none'}; build it as the trial's task did"
        )
    mismatch = model.load_state_dict(weights(source, trained), strict=False)
    missing = sorted({*mismatch.missing_keys} - frozen_base_names(model)) + mismatch.unexpected_keys
    if missing:
        raise ValueError(
            f"checkpoint {folder} is of another model: only one of the two has {missing[0]}; give "
            "the task the trial's parameters"
        )
    return model
