"""The checkpoints of `ray.train.report`: the ranks' folders become one, under a name."""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch.distributed as dist
from ray.train import Checkpoint

from trainables.parallel.gathering import gather_results
from trainables.storage import checkpoint as checkpoints
from trainables.worker import ReportError, Worker

NAME = "hposvc.checkpoint_dir_name"  # key of Ray's metadata of a checkpoint

Result = TypeVar("Result")


def merge(worker: Worker, step: int, folder: Path | None) -> tuple[Path | None, bool]:
    """Return a folder with the files that all ranks report as the checkpoint of a step.

    All ranks call it. Of files with the same name, that of the lowest rank is taken.

    Args:
        folder: of this rank; None: it reports no checkpoint.

    Returns:
        The folder on rank 0, which stores it, and None on the others; whether there is one.
    """
    parts = gather(worker, lambda: None if folder is None else _files(folder))
    if all(part is None for part in parts):
        return None, False
    owners = {name: rank for rank in reversed(range(len(parts))) for name in parts[rank] or ()}
    if parts[0] is not None and not any(owners.values()):
        return (folder if worker.rank == 0 else None), True  # as under DDP: rank 0 has everything
    return _collect(worker, step, folder, owners), True


def _files(folder: Path) -> tuple[str, ...]:
    """Return the files in a folder, and in folders that it links to."""
    return tuple(
        Path(inner, name).relative_to(folder).as_posix()
        for inner, _, names in os.walk(folder, followlinks=True)
        for name in names
    )


def _collect(
    worker: Worker, step: int, folder: Path | None, owners: Mapping[str, int]
) -> Path | None:
    """Bring the ranks' files to rank 0's scratch folder, or to the store if there is one."""
    to_store, is_rank_0 = worker.storage is not None, worker.rank == 0
    target = gather(worker, lambda: worker.scratch() if is_rank_0 or to_store else None)
    own = target[worker.rank] or target[0]
    assert own is not None  # rank 0 has one

    def bring() -> Mapping[str, checkpoints.Entry]:
        mine = [name for name, rank in owners.items() if rank == worker.rank]
        for name in mine:
            (own / name).parent.mkdir(parents=True, exist_ok=True)
            assert folder is not None  # it has files
            shutil.copy2(folder / name, own / name)
        return worker.writer.send_part(step, 0, own) if to_store and not is_rank_0 else {}

    sent = {name: entry for part in gather(worker, bring) for name, entry in part.items()}
    if not is_rank_0:
        return None
    if sent:
        (own / checkpoints.PARTS_IN_STORE).write_text(json.dumps(sent))
    return own


def gather(worker: Worker, work: Callable[[], Result]) -> Sequence[Result]:
    """Return the results of all ranks.

    Raises:
        ReportError: the ranks have no process group.
    """
    if worker.world_size == 1:
        return [work()]
    if not dist.is_initialized():
        raise ReportError(
            "ray.train needs the process group of the ranks; leave process_group: user out"
        )
    return gather_results(work)


def name_folder(worker: Worker, folder: Path, name: str) -> Path:
    """Note the name of a checkpoint's folder in Ray's metadata, in a folder of the worker."""
    if not folder.is_relative_to(worker.writer.scratch_root):
        folder = checkpoints.copy(folder, worker.scratch())
    Checkpoint(folder).update_metadata({NAME: name})
    return folder


def named_folder(worker: Worker, folder: Path) -> Path:
    """Return the folder under its noted name, if it has one."""
    name = Checkpoint(folder).get_metadata().get(NAME)
    if name is None:
        return folder
    link = worker.scratch() / Path(name).name
    link.symlink_to(folder.absolute(), target_is_directory=True)
    return link
