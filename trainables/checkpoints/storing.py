"""Where snapshots are written and read: one file, or one beside each rank's shards.

`training.pt` holds what is no tensor, and all tensors too where one rank writes them. Shards are
files of torch.distributed.checkpoint: each rank writes its own parts into the same folder, and a
reader takes what it needs, on any number of ranks. One file, because that format costs a small
model 12 ms of a processor instead of 2, and 5 files to force to disk.
"""

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
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from trainables.checkpoints.snapshot import Snapshot, Source

FILE = "training.pt"
SHARDS = ".metadata"  # what torch.distributed.checkpoint writes last: its table of contents


@dataclass(frozen=True)
class Shards:
    """What ranks wrote together; a Source."""

    folder: Path
    values: Mapping[str, object]

    @property
    def name(self) -> str:
        return str(self.folder)

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """Without their values."""
        entries = self._contents().state_dict_metadata.items()
        return {
            name: torch.empty(entry.size, dtype=entry.properties.dtype, device="meta")
            for name, entry in entries
            if isinstance(entry, TensorStorageMetadata)
        }

    def fill(self, targets: Mapping[str, Tensor]) -> None:
        with warnings.catch_warnings():
            # Each rank reads what it needs; that it does so alone is no mistake.
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            dcp.load(dict(targets), storage_reader=dcp.FileSystemReader(self.folder), no_dist=True)

    def _contents(self) -> Metadata:
        return dcp.FileSystemReader(self.folder).read_metadata()


def write(snapshot: Snapshot, folder: Path) -> None:
    """Write all of it into one file."""
    _write_file(folder, snapshot.tensors, snapshot.values)


def write_shards(snapshot: Snapshot, folder: Path, group: dist.ProcessGroup) -> None:
    """Write this rank's part, as every rank of the group does, be it into folders of their own.

    Once rank 0 is back, all is there.
    """
    parts: list[dict[str, object]] = [{} for _ in range(dist.get_world_size(group))]
    first = dist.get_rank(group) == 0
    dist.gather_object(snapshot.values, parts if first else None, dst=0, group=group)
    if first:
        _write_file(
            folder, {}, {name: value for part in parts[::-1] for name, value in part.items()}
        )
    dcp.save(snapshot.tensors, storage_writer=dcp.FileSystemWriter(folder), process_group=group)


def read(folder: Path) -> Source:
    """What was written, by one rank or by several.

    Raises:
        ValueError: it is no checkpoint of a Task.
    """
    if not (folder / FILE).exists():
        raise ValueError(f"{folder} has no {FILE}; only what a Task saved can be read")
    held = torch.load(folder / FILE, map_location="cpu", weights_only=True)
    if (folder / SHARDS).exists():
        return Shards(folder, held["values"])
    return Snapshot(held["tensors"], held["values"], str(folder))


def _write_file(folder: Path, tensors: Mapping[str, Tensor], values: Mapping[str, object]) -> None:
    _check_readable(values)
    torch.save({"tensors": dict(tensors), "values": dict(values)}, folder / FILE)


def _check_readable(values: Mapping[str, object]) -> None:
    """Refuse at once what could not be read again: reading runs no code of others."""
    trial = io.BytesIO()
    torch.save(dict(values), trial)
    trial.seek(0)
    try:
        torch.load(trial, weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            "a module's get_extra_state, or the optimizer, holds what no checkpoint can give back; "
            f"use tensors, numbers, texts, lists and dicts: {error}"
        ) from error


def check_complete(folder: Path, elsewhere: Collection[str] = ()) -> None:
    """Refuse a checkpoint of which a part was written where nobody will find it.

    Args:
        elsewhere: the files that are known to be in another place.

    Raises:
        FileNotFoundError: names the first file, and the remedy.
    """
    for entry in (dcp.FileSystemReader(folder).read_metadata().storage_data or {}).values():
        name = entry.relative_path
        if name not in elsewhere and not (folder / name).exists():
            raise FileNotFoundError(
                f"{folder / name}: another rank wrote it, but it is not there; "
                "give `storage` a folder that all nodes share, or the URL of a store"
            )
