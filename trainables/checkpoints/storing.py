"""Write and read snapshots: as one file, or as one file beside each rank's shards.

`training.pt` holds all values but tensors, and the tensors too if a single rank writes them. Shards
are files of torch.distributed.checkpoint: each rank writes its own parts into the same folder, and
a reader takes the parts that it needs, on any number of ranks. A single writer does not use that
format, because for a small model it costs 12 ms of a processor instead of 2, and 5 files to sync.
"""

import copy
import io
import pickle
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from trainables.checkpoints.snapshot import CheckpointSnapshot, SnapshotSource
from trainables.parallel.gathering import gather_results

FILE = "training.pt"
SHARDS = ".metadata"  # the table of contents, which torch.distributed.checkpoint writes last


@dataclass(frozen=True)
class Shards:
    """A Source whose tensors several ranks wrote."""

    folder: Path
    values: Mapping[str, object]

    @property
    def name(self) -> str:
        return str(self.folder)

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """The tensors on the meta device, without values."""
        metadata = dcp.FileSystemReader(self.folder).read_metadata().state_dict_metadata
        return {
            name: torch.empty(entry.size, dtype=entry.properties.dtype, device="meta")
            for name, entry in metadata.items()
            if isinstance(entry, TensorStorageMetadata)
        }

    def fill(self, targets: Mapping[str, Tensor]) -> None:
        with warnings.catch_warnings():
            # Each rank reads its own parts, so reading without a process group is right.
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            dcp.load(dict(targets), storage_reader=dcp.FileSystemReader(self.folder), no_dist=True)


def write(snapshot: CheckpointSnapshot, folder: Path) -> None:
    """Write a snapshot into one file."""
    _write_file(folder, snapshot.tensors, snapshot.values)


def write_shards(snapshot: CheckpointSnapshot, folder: Path, group: dist.ProcessGroup) -> None:
    """Write this rank's shards, as all ranks of the group must, into one folder or one for each.

    When the call returns on rank 0, the shards of all ranks are written.
    """
    parts: list[dict[str, object]] = [{} for _ in range(dist.get_world_size(group))]
    first = dist.get_rank(group) == 0
    dist.gather_object(snapshot.values, parts if first else None, dst=0, group=group)

    def write_values() -> None:
        if first:
            values = {name: value for part in parts[::-1] for name, value in part.items()}
            _write_file(folder, {}, values)

    gather_results(write_values, group)
    dcp.save(snapshot.tensors, storage_writer=dcp.FileSystemWriter(folder), process_group=group)


def read(folder: Path) -> SnapshotSource:
    """Open a checkpoint written by one rank or by several.

    Raises:
        ValueError: the folder is no checkpoint of a Task.
    """
    if not (folder / FILE).exists():
        raise ValueError(f"{folder} has no {FILE}; only what a Task saved can be read")
    # With mmap, the ranks of a node share pages, and each reads only the tensors that it restores.
    # The few other values are copied, since they may stay in use after the file is gone.
    content = torch.load(folder / FILE, map_location="cpu", weights_only=True, mmap=True)
    values = copy.deepcopy(content["values"])
    if (folder / SHARDS).exists():
        return Shards(folder, values)
    return CheckpointSnapshot(content["tensors"], values, str(folder))


def _write_file(folder: Path, tensors: Mapping[str, Tensor], values: Mapping[str, object]) -> None:
    _check_readable(values)
    torch.save({"tensors": dict(tensors), "values": dict(values)}, folder / FILE)


def _check_readable(values: Mapping[str, object]) -> None:
    """Refuse values that could not be read again: reading unpickles no arbitrary classes."""
    buffer = io.BytesIO()
    torch.save(dict(values), buffer)
    buffer.seek(0)
    try:
        torch.load(buffer, weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            "a module's get_extra_state, or the optimizer, holds what no checkpoint can give back; "
            f"use tensors, numbers, texts, lists and dicts: {error}"
        ) from error


def check_complete(folder: Path, elsewhere: Collection[str] = ()) -> None:
    """Refuse a checkpoint whose folder lacks shards of other ranks.

    Args:
        elsewhere: the files that are in the store instead.

    Raises:
        FileNotFoundError: names the first missing file, and the remedy.
    """
    for entry in (dcp.FileSystemReader(folder).read_metadata().storage_data or {}).values():
        name = entry.relative_path
        if name not in elsewhere and not (folder / name).exists():
            raise FileNotFoundError(
                f"{folder / name}: another rank wrote it, but it is not there; "
                "give `storage` a folder that all nodes share, or the URL of a store"
            )
