"""Samples for training: tensors on the device, datasets loaded ahead by processes, token files."""

from trainables.data.loaded import MapDataset
from trainables.data.packing import IGNORED, pack
from trainables.data.preparing import checksum_of, prepared
from trainables.data.sources import Batch, Data, Source, Tensors
from trainables.data.streaming import Stream, StreamShard
from trainables.data.tokens import TokenFile, Tokens

__all__ = [
    "IGNORED",
    "Batch",
    "Data",
    "MapDataset",
    "Source",
    "Stream",
    "StreamShard",
    "Tensors",
    "TokenFile",
    "Tokens",
    "checksum_of",
    "pack",
    "prepared",
]
