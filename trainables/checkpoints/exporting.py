"""A checkpoint's weights as a plain state_dict, for whoever does not have this package.

    python -m trainables.checkpoints.exporting FOLDER --to model.pt
    python -m trainables.checkpoints.exporting FOLDER --to model.safetensors --ema

Without ranks, whatever strategy wrote it; names are those of the task's own model. A folder with
shards is for those who trust where it comes from: torch unpickles their table of contents.
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from trainables.checkpoints.checkpoint import MANIFEST, CheckpointDamaged, check
from trainables.checkpoints.snapshot import Source
from trainables.checkpoints.storing import read

Write = Callable[[Mapping[str, Tensor], Path], None]


def export(folder: Path, target: Path, ema: bool = False) -> Path:
    """Write a checkpoint's weights and buffers to a file, and return it.

    Args:
        target: its ending says how: .pt or .pth for torch.load, .safetensors.
        ema: the averaged weights in place of the trained ones.

    Raises:
        CheckpointDamaged: a file is not as it was saved.
        ValueError: the folder is no checkpoint of a Task, it has no averages, or the ending is
            another one.
        ModuleNotFoundError: safetensors is not installed.
    """
    if target.suffix not in WRITERS:
        raise ValueError(f"{target}: choose an ending of {', '.join(WRITERS)}")
    if (folder / MANIFEST).exists():
        check(folder)
    WRITERS[target.suffix](weights(read(folder), ema), target)
    return target


def weights(source: Source, ema: bool = False) -> dict[str, Tensor]:
    """The model's state_dict, on the CPU.

    Raises:
        ValueError: there are no averages to take.
    """
    if ema and "average" not in source.values:
        raise ValueError(f"{source.name} has no averaged weights; train with training.ema")
    found = _whole(source, "model.")
    if not ema:
        return found
    averages = _whole(source, "average.")
    tied = source.values["tied"]
    assert isinstance(tied, Mapping)
    names = {name: tied.get(name, name) for name in found}
    return {
        name: averages[names[name]].to(value.dtype) if names[name] in averages else value
        for name, value in found.items()
    }


def _whole(source: Source, kind: str) -> dict[str, Tensor]:
    targets = {
        name: torch.empty(like.shape, dtype=like.dtype)
        for name, like in source.tensors.items()
        if name.startswith(kind)
    }
    source.fill(targets)
    return {name.removeprefix(kind): value for name, value in targets.items()}


def _write_torch(held: Mapping[str, Tensor], target: Path) -> None:
    torch.save(dict(held), target)


def _write_safetensors(held: Mapping[str, Tensor], target: Path) -> None:
    try:
        from safetensors.torch import save_file
    except ModuleNotFoundError as error:
        message = "safetensors is not installed; pip install 'hposvc[export]'"
        raise ModuleNotFoundError(message) from error
    save_file(dict(held), target, metadata={"format": "pt"})


WRITERS: dict[str, Write] = {
    ".pt": _write_torch,
    ".pth": _write_torch,
    ".safetensors": _write_safetensors,
}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        "python -m trainables.checkpoints.exporting", description="Export weights"
    )
    parser.add_argument("folder", type=Path, help="of a checkpoint")
    parser.add_argument("--to", type=Path, required=True, help=f"a file: {', '.join(WRITERS)}")
    parser.add_argument("--ema", action="store_true", help="averaged weights")
    given = parser.parse_args()
    try:
        export(given.folder, given.to, given.ema)
    except (CheckpointDamaged, ValueError, ModuleNotFoundError, OSError) as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
