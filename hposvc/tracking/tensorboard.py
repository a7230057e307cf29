"""Runs as event files of TensorBoard, in a folder for each trial: curves and hyperparameters.

The records of a run follow from the journal alone, in the same order at each repetition. So a
writer that begins counts the records of each file, cuts off a torn one, and writes what follows.
"""

import os
import shutil
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tensorboardX.proto import api_pb2, event_pb2, plugin_hparams_pb2, summary_pb2
from tensorboardX.record_writer import masked_crc32c

from hposvc.spec.sinks import SINKS
from hposvc.tracking.projection import PARENT, RunContent, RunEnd
from hposvc.tracking.sink import Batch, Sink, SinkSetting
from searchers import Value, as_text

FILE = "events.out.tfevents.0.hposvc"  # TensorBoard reads files with `tfevents` in their names
SWEEP = "sweep"  # the folder of the sweep's own run
VERSION = "brain.Event:2"
HEADER, FOOTER = struct.Struct("<QI"), struct.Struct("<I")  # of a record: its length and checksums
STATUS: Mapping[RunEnd, str] = {
    "FINISHED": "STATUS_SUCCESS",
    "FAILED": "STATUS_FAILURE",
    "KILLED": "STATUS_UNKNOWN",
}


class TensorBoard(Sink):
    """A sweep's runs in the folder tensorboard/ of its folder."""

    name: ClassVar[str] = "tensorboard"

    def __init__(self, setting: SinkSetting) -> None:
        self.path: Path = setting.folder / SINKS[self.name].path
        self._there: dict[str, int] = {}  # records still to be skipped, by run

    def open(self) -> None:
        """Count the records of each run, and cut off torn ones."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._there = {
            file.parent.name: _cut_torn_record(file) for file in self.path.glob(f"*/{FILE}")
        }

    def resume_point(self, cursor: int, begun: Collection[str]) -> int:
        """Return 0: which records a file has is known by their count from the first event on."""
        return 0

    def clear(self) -> None:
        """Delete all files."""
        shutil.rmtree(self.path)
        self.open()

    def send(self, batches: Sequence[Batch]) -> None:
        """Append the records that the files do not have yet, and wait for the disk."""
        records: dict[str, list[bytes]] = {}
        for batch in batches:
            for run, entry in batch.entries.items():
                new = [event.SerializeToString() for event in _events(entry)]
                records.setdefault(SWEEP if run == PARENT else run, []).extend(new)
        for run, contents in records.items():
            skipped = min(self._there.get(run, 0), len(contents))
            if skipped:
                self._there[run] -= skipped
            self._append(run, contents[skipped:])

    def _append(self, run: str, contents: Sequence[bytes]) -> None:
        if not contents:
            return
        folder = self.path / run
        folder.mkdir(exist_ok=True)
        with (folder / FILE).open("ab") as file:
            file.write(b"".join(map(_record, contents)))
            file.flush()
            os.fsync(file.fileno())


def _events(entry: RunContent) -> Iterator[Any]:
    """Yield the events of an entry: its begin, its metrics, its end."""
    if entry.start is not None:
        yield event_pb2.Event(wall_time=entry.start / 1000, file_version=VERSION)
        begin = plugin_hparams_pb2.SessionStartInfo(start_time_secs=entry.start / 1000)
        for name, value in entry.params.items():
            _set_hparam(begin.hparams[name], value)
        data = plugin_hparams_pb2.HParamsPluginData(session_start_info=begin)
        yield _hparams_event(entry.start, "_hparams_/session_start_info", data)
    for point in entry.points:
        value = summary_pb2.Summary.Value(tag=point.name, simple_value=point.value)
        yield _event(point.time, value, point.step)
    if entry.status is not None and entry.end is not None:
        status = api_pb2.Status.Value(STATUS[entry.status])
        end = plugin_hparams_pb2.SessionEndInfo(status=status, end_time_secs=entry.end / 1000)
        data = plugin_hparams_pb2.HParamsPluginData(session_end_info=end)
        yield _hparams_event(entry.end, "_hparams_/session_end_info", data)


def _set_hparam(target: Any, value: Value) -> None:
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int | float):
        target.number_value = value
    else:
        target.string_value = "" if value is None else as_text(value)


def _hparams_event(time_ms: int, tag: str, data: Any) -> Any:
    plugin = summary_pb2.SummaryMetadata.PluginData(
        plugin_name="hparams", content=data.SerializeToString()
    )
    metadata = summary_pb2.SummaryMetadata(plugin_data=plugin)
    return _event(time_ms, summary_pb2.Summary.Value(tag=tag, metadata=metadata), 0)


def _event(time_ms: int, value: Any, step: int) -> Any:
    summary = summary_pb2.Summary(value=[value])
    return event_pb2.Event(wall_time=time_ms / 1000, step=step, summary=summary)


def _record(content: bytes) -> bytes:
    """Return a record of a TFRecord file: length, checksum, content, checksum."""
    length = struct.pack("<Q", len(content))
    head = HEADER.pack(len(content), masked_crc32c(length))
    return head + content + FOOTER.pack(masked_crc32c(content))


def _cut_torn_record(path: Path) -> int:
    """Cut off what follows the last whole record, and return the number of records."""
    size, end, count = path.stat().st_size, 0, 0
    with path.open("r+b") as file:
        while len(head := file.read(HEADER.size)) == HEADER.size:
            length, _ = HEADER.unpack(head)
            after = end + HEADER.size + length + FOOTER.size
            if after > size:
                break
            end, count = file.seek(after), count + 1
        file.truncate(end)
    return count
