"""Export of a checkpoint's weights as a plain state_dict, for users without this package.

    python -m trainables.checkpoints.exporting FOLDER --to model.pt
    python -m trainables.checkpoints.exporting FOLDER --to model.safetensors --trained

They are the weights that the reported values were measured with: averages, where the training kept
some (`training.ema`, a schedule-free optimizer), unless the trained weights are asked for.

The export needs no ranks, whatever strategy wrote the checkpoint; names are those of the task's own
model. Export a folder with shards only if you trust its origin: torch unpickles their metadata.
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from trainables.checkpoints.snapshot import SnapshotSource
from trainables.checkpoints.storing import read
from trainables.storage.checkpoint import MANIFEST, CheckpointDamaged, check

Write = Callable[[Mapping[str, Tensor], Path], None]


def export(folder: Path, target: Path, trained: bool = False) -> Path:
    """Write a checkpoint's weights and buffers to a file, and return it.

    Args:
        target: its ending says how: .pt or .pth for torch.load, .safetensors.
        trained: write the trained weights, also where averages of them were evaluated.

    Raises:
        CheckpointDamaged: a file is not as it was saved.
        ValueError: the folder is no checkpoint of a Task, or the ending is none of these.
        ModuleNotFoundError: safetensors is not installed.
    """
    if target.suffix not in WRITERS:
        raise ValueError(f"{target}: choose an ending of {', '.join(WRITERS)}")
    if (folder / MANIFEST).exists():
        check(folder)
    WRITERS[target.suffix](weights(read(folder), trained), target)
    return target


def weights(source: SnapshotSource, trained: bool = False) -> dict[str, Tensor]:
    """Return the state_dict of the model that was evaluated, or was trained, on the CPU."""
    state_dict = _read_tensors(source, "model.")
    if trained or "average" not in source.values:
        return state_dict
    averages = _read_tensors(source, "average.")
    tied = source.values["tied"]
    assert isinstance(tied, Mapping)
    names = {name: tied.get(name, name) for name in state_dict}
    return {
        name: averages[names[name]].to(value.dtype) if names[name] in averages else value
        for name, value in state_dict.items()
    }


def _read_tensors(source: SnapshotSource, kind: str) -> dict[str, Tensor]:
    targets = {
        name: torch.empty(like.shape, dtype=like.dtype)
        for name, like in source.tensors.items()
        if name.startswith(kind)
    }
    source.fill(targets)
    return {name.removeprefix(kind): value for name, value in targets.items()}


def _write_torch(tensors: Mapping[str, Tensor], target: Path) -> None:
    torch.save(dict(tensors), target)


def _write_safetensors(tensors: Mapping[str, Tensor], target: Path) -> None:
    try:
        from safetensors.torch import save_file
    except ModuleNotFoundError as error:
        message = "safetensors is not installed; pip install 'hposvc[export]'"
        raise ModuleNotFoundError(message) from error
    save_file(dict(tensors), target, metadata={"format": "pt"})


WRITERS: dict[str, Write] = {
    ".pt": _write_torch,
    ".pth": _write_torch,
    ".safetensors": _write_safetensors,
}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        "python -m trainables.checkpoints.exporting", description="Export weights"
    )
    parser.add_argument("folder", type=Path, help="of a checkpoint")
    parser.add_argument("--to", type=Path, required=True, help=f"a file: {', '.join(WRITERS)}")
    parser.add_argument(
        "--trained", action="store_true", help="trained weights, where averages were evaluated"
    )
    arguments = parser.parse_args()
    try:
        export(arguments.folder, arguments.to, arguments.trained)
    except (CheckpointDamaged, ValueError, ModuleNotFoundError, OSError) as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
