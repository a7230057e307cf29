"""Where snapshots are written and read: one file, or one beside each rank's shards.

`training.pt` holds what is no tensor, and all tensors too where one rank writes them. Shards are
files of torch.distributed.checkpoint: each rank writes its own parts into the same folder, and a
reader takes what it needs, on any number of ranks. One file, because that format costs a small
model 12 ms of a processor instead of 2, and 5 files to force to disk.
"""

import io
import pickle
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Protocol, cast

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter

from trainables.checkpoints.snapshot import Snapshot, Source

FILE = "training.pt"
SHARDS = ".metadata"  # what torch.distributed.checkpoint writes last: its table of contents


class Shelf(Protocol):
    """A place for the files of one checkpoint."""

    def open(self, name: str, mode: str) -> BinaryIO:
        """A file; for reading (rb) or writing (wb)."""
        ...

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        ...

    def writer(self) -> StorageWriter:
        """Writes shards."""
        ...

    def reader(self) -> StorageReader:
        """Reads them."""
        ...


@dataclass(frozen=True)
class Folder:
    """A folder that all ranks see; a Shelf."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def open(self, name: str, mode: str) -> BinaryIO:
        return cast(BinaryIO, (self.path / name).open(mode))

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def writer(self) -> StorageWriter:
        return dcp.FileSystemWriter(self.path)

    def reader(self) -> StorageReader:
        return dcp.FileSystemReader(self.path)


@dataclass(frozen=True)
class Shards:
    """What ranks wrote together; a Source."""

    shelf: Shelf
    values: Mapping[str, object]

    @property
    def name(self) -> str:
        return str(self.shelf)

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
            dcp.load(dict(targets), storage_reader=self.shelf.reader(), no_dist=True)

    def _contents(self) -> Metadata:
        return self.shelf.reader().read_metadata()


def write(snapshot: Snapshot, shelf: Shelf) -> None:
    """Write all of it into one file."""
    _write_file(shelf, snapshot.tensors, snapshot.values)


def write_shards(snapshot: Snapshot, shelf: Shelf, group: dist.ProcessGroup) -> None:
    """Write this rank's part, as every rank of the group does; once rank 0 is back, all is there.

    Raises:
        FileNotFoundError: on rank 0; ranks do not see the same folder.
    """
    parts: list[dict[str, object]] = [{} for _ in range(dist.get_world_size(group))]
    first = dist.get_rank(group) == 0
    dist.gather_object(snapshot.values, parts if first else None, dst=0, group=group)
    if first:
        _write_file(
            shelf, {}, {name: value for part in parts[::-1] for name, value in part.items()}
        )
    dcp.save(snapshot.tensors, storage_writer=shelf.writer(), process_group=group)
    if first:
        _check_complete(shelf)


def read(shelf: Shelf) -> Source:
    """What was written, by one rank or by several.

    Raises:
        ValueError: it is no checkpoint of a Task.
    """
    if not shelf.has(FILE):
        raise ValueError(f"{shelf} has no {FILE}; only what a Task saved can be read")
    with shelf.open(FILE, "rb") as stream:
        held = torch.load(stream, map_location="cpu", weights_only=True)
    if shelf.has(SHARDS):
        return Shards(shelf, held["values"])
    return Snapshot(held["tensors"], held["values"], str(shelf))


def _write_file(shelf: Shelf, tensors: Mapping[str, Tensor], values: Mapping[str, object]) -> None:
    _check_readable(values)
    with shelf.open(FILE, "wb") as stream:
        torch.save({"tensors": dict(tensors), "values": dict(values)}, stream)


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


def _check_complete(shelf: Shelf) -> None:
    """Refuse a checkpoint of which other nodes wrote their part elsewhere."""
    contents = shelf.reader().read_metadata()
    for entry in (contents.storage_data or {}).values():
        if not shelf.has(entry.relative_path):
            raise FileNotFoundError(
                f"{shelf}/{entry.relative_path}: another rank wrote it, but it is not there; "
                "give `storage` a folder that all nodes share"
            )
