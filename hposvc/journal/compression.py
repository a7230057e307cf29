"""Lossless compression of the events of an ended sweep into a few rows, a fifth of the size.

A pack is stored as the row of its last event, with a kind that only the journal knows. Versions
that can't read packs fail on the unknown kind instead of taking the sweep for an empty one.
"""

import base64
import hashlib
import zlib
from collections.abc import Sequence
from typing import NamedTuple

KIND = "packed"
MAX_EVENTS = 10_000  # events in a pack, at most
MIN_EVENTS = 2  # events that are worth a pack
LEVEL = 6  # of zlib


class EventRow(NamedTuple):
    """A row of the journal's events."""

    seq: int
    kind: str
    time: float
    body: str


class CompressedEvents(NamedTuple):
    """The packs that replace the rows of a sweep's events."""

    rows: list[EventRow]
    events: int  # number of events in the packs
    saved: int  # bytes


class Damaged(Exception):
    """A pack differs from what was written."""


def pack(rows: Sequence[EventRow]) -> CompressedEvents:
    """Compress events, whose numbers follow one another without a gap, into packs.

    Raises:
        Damaged: unpacking would not return the same events, so they should stay as they are.
    """
    parts = [rows[begin : begin + MAX_EVENTS] for begin in range(0, len(rows), MAX_EVENTS)]
    packs = [_pack(part) for part in parts]
    try:
        lossless = [row for packed in packs for row in unpack(packed)] == list(rows)
    except Damaged:
        lossless = False
    if not lossless:
        raise Damaged("its events can't be packed without a loss")
    before, after = (sum(len(row.body) for row in group) for group in (rows, packs))
    return CompressedEvents(packs, len(rows), before - after)


def unpack(row: EventRow) -> list[EventRow]:
    """Return the events of a pack.

    Raises:
        Damaged: the content of the pack does not match its digest.
    """
    try:
        digest, text = row.body.split(" ")
        lines = zlib.decompress(base64.b85decode(text))
        if hashlib.sha256(lines).hexdigest() != digest:
            raise ValueError("another digest")
        fields = [line.split(" ", 2) for line in lines.decode().split("\n")]
        first = row.seq - len(fields) + 1
        return [
            EventRow(seq, kind, float.fromhex(time), body)
            for seq, (kind, time, body) in enumerate(fields, first)
        ]
    except (ValueError, zlib.error) as error:
        raise Damaged(f"the events up to number {row.seq} are damaged: {error}") from error


def _pack(rows: Sequence[EventRow]) -> EventRow:
    text = "\n".join(f"{row.kind} {row.time.hex()} {row.body}" for row in rows)
    lines = text.encode()
    last, digest = rows[-1], hashlib.sha256(lines).hexdigest()
    body = base64.b85encode(zlib.compress(lines, LEVEL)).decode()
    return EventRow(last.seq, KIND, last.time, f"{digest} {body}")
