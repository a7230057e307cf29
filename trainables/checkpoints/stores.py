"""Checkpoints in a store of fsspec: s3://, gs://, memory:// and all others that it knows."""

from dataclasses import dataclass
from typing import BinaryIO, cast

import fsspec
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter


@dataclass(frozen=True)
class Store:
    """The files under a URL; a Shelf."""

    url: str

    def __str__(self) -> str:
        return self.url

    def open(self, name: str, mode: str) -> BinaryIO:
        return cast(BinaryIO, fsspec.open(f"{self.url}/{name}", mode, auto_mkdir=True).open())

    def has(self, name: str) -> bool:
        system, path = fsspec.url_to_fs(self.url)
        return bool(system.exists(f"{path}/{name}"))

    def writer(self) -> StorageWriter:
        return FsspecWriter(self.url)

    def reader(self) -> StorageReader:
        return FsspecReader(self.url)
