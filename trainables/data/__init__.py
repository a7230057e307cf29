"""Samples for training: what lies on the device, what processes load ahead, tokens of a text."""

from trainables.data.loaded import Loaded
from trainables.data.packing import IGNORED, pack
from trainables.data.preparing import checksum_of, prepared
from trainables.data.sources import Batch, Data, Source, Tensors
from trainables.data.tokens import TokenFile, Tokens

__all__ = [
    "IGNORED",
    "Batch",
    "Data",
    "Loaded",
    "Source",
    "Tensors",
    "TokenFile",
    "Tokens",
    "checksum_of",
    "pack",
    "prepared",
]
