"""Events of an ended sweep in a few rows: a fifth of the room, and every bit as before.

A pack stands in the journal where its last event stood, as an event of a kind that only the journal
knows. So a version that can't read packs refuses the sweep, and takes none for one without events.
"""

import base64
import hashlib
import zlib
from collections.abc import Sequence
from typing import NamedTuple

KIND = "packed"
MOST = 10_000  # events of a pack
LEAST = 2  # that are worth one
LEVEL = 6  # of zlib


class Row(NamedTuple):
    """An event as the journal has it."""

    seq: int
    kind: str
    time: float
    body: str


class Packs(NamedTuple):
    """What takes the place of events."""

    rows: list[Row]
    events: int  # that are in them
    saved: int  # bytes


class Damaged(Exception):
    """A pack is not what was written."""


def pack(rows: Sequence[Row]) -> Packs:
    """The same events in packs; their numbers follow one another without a gap.

    Raises:
        Damaged: they would not come back as they are, so they had better stay.
    """
    parts = [rows[begin : begin + MOST] for begin in range(0, len(rows), MOST)]
    packs = [_pack(part) for part in parts]
    try:
        whole = [row for one in packs for row in unpack(one)] == list(rows)
    except Damaged:
        whole = False
    if not whole:
        raise Damaged("its events can't be packed without a loss")
    before, after = (sum(len(row.body) for row in each) for each in (rows, packs))
    return Packs(packs, len(rows), before - after)


def unpack(row: Row) -> list[Row]:
    """The events of a pack.

    Raises:
        Damaged: its digest is not that of what it holds.
    """
    try:
        digest, text = row.body.split(" ")
        lines = zlib.decompress(base64.b85decode(text))
        if hashlib.sha256(lines).hexdigest() != digest:
            raise ValueError("another digest")
        found = [line.split(" ", 2) for line in lines.decode().split("\n")]
        first = row.seq - len(found) + 1
        return [
            Row(seq, kind, float.fromhex(time), body)
            for seq, (kind, time, body) in enumerate(found, first)
        ]
    except (ValueError, zlib.error) as error:
        raise Damaged(f"the events up to number {row.seq} are damaged: {error}") from error


def _pack(rows: Sequence[Row]) -> Row:
    text = "\n".join(f"{row.kind} {row.time.hex()} {row.body}" for row in rows)
    lines = text.encode()
    last, digest = rows[-1], hashlib.sha256(lines).hexdigest()
    body = base64.b85encode(zlib.compress(lines, LEVEL)).decode()
    return Row(last.seq, KIND, last.time, f"{digest} {body}")
