"""Runs as lines of JSON in a file of the sweep's folder, for pandas, jq and scripts.

Each line belongs to an event of the journal and has its number among the event's lines. Both follow
from the journal alone, so the end of the file says what the file holds, whenever its writer died: a
torn last line is cut off, and lines that are there are not written again.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, ClassVar

from hposvc.spec.sinks import SINKS
from hposvc.text import finite
from hposvc.tracking.projection import PARENT, RunContent
from hposvc.tracking.sink import Batch, Sink, SinkSetting

BLOCK = 65_536  # bytes read at a time, from the end

Fields = Mapping[str, object]


class JsonLines(Sink):
    """A sweep's runs in the file tracking.jsonl of its folder."""

    name: ClassVar[str] = "json_lines"

    def __init__(self, setting: SinkSetting) -> None:
        self.path: Path = setting.folder / SINKS[self.name].path
        self._last = (0, 0)  # the event of the last line, and how many lines of it are there

    def open(self) -> None:
        """Find the end of the file, and cut off a torn last line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()
        with self.path.open("r+b") as file:
            line = _cut_torn_line(file)
        end = json.loads(line) if line else {"event": 0, "part": -1}
        self._last = end["event"], end["part"] + 1

    def resume_point(self, cursor: int, begun: Collection[str]) -> int:
        """Return the cursor; less if the file ends before it."""
        return min(cursor, max(0, self._last[0] - 1))

    def clear(self) -> None:
        """Empty the file."""
        self.path.write_bytes(b"")
        self._last = (0, 0)

    def send(self, batches: Sequence[Batch]) -> None:
        """Append the lines that the file does not have yet, and wait for the disk."""
        lines = [
            (batch.seq, part, {"event": batch.seq, "part": part, **fields})
            for batch in batches
            for part, fields in enumerate(_batch_fields(batch.entries))
        ]
        new = [line for line in lines if line[:2] >= self._last]
        if not new:
            return
        with self.path.open("ab") as file:
            file.write("".join(json.dumps(fields) + "\n" for *_, fields in new).encode())
            file.flush()
            os.fsync(file.fileno())
        seq, part, _ = new[-1]
        self._last = seq, part + 1


def _batch_fields(entries: Mapping[str, RunContent]) -> Iterator[Fields]:
    for run, entry in entries.items():
        trial = None if run == PARENT else run
        for kind, fields in _entry_fields(entry):
            yield {"kind": kind, "trial": trial, **fields}


def _entry_fields(entry: RunContent) -> Iterator[tuple[str, Fields]]:
    """Yield kind and fields of the lines of an entry."""
    if entry.start is not None:
        params = {name: finite(value) for name, value in entry.params.items()}
        yield "begin", {"time_ms": entry.start, "params": params}
    for data in entry.inputs:
        fields = {"name": data.name, "context": data.context, "samples": data.samples}
        yield "data", {**fields, "digest": data.digest, "source": data.source}
    for (time, step), points in groupby(entry.points, lambda point: (point.time, point.step)):
        metrics = {point.name: finite(point.value) for point in points}
        yield "metrics", {"time_ms": time, "step": step, "metrics": metrics}
    if entry.tags:
        status = entry.status or "RUNNING"
        yield "state", {"status": status, "end_ms": entry.end, "tags": entry.tags}


def _cut_torn_line(file: BinaryIO) -> bytes:
    """Cut off what follows the last end of a line, and return the last line; empty: no line."""
    start = file.seek(0, os.SEEK_END)
    tail = b""
    while start > 0 and tail.count(b"\n") < 2:
        size = min(BLOCK, start)
        start = file.seek(start - size)
        tail = file.read(size) + tail
    complete = tail[: tail.rfind(b"\n") + 1]
    file.truncate(start + len(complete))
    return complete[:-1].rpartition(b"\n")[2]
