"""Runs as files of Weights & Biases, in its own format: `wandb sync` uploads them.

`wandb.init` would start a service, and under a killed writer nobody knows how much of it was
written. So the records of a run go straight to a file like those of W&B's offline mode, by W&B's
own writer. They follow from the journal alone, in the same order at each repetition. So a writer
that begins counts the records of each file, cuts off a torn one, and writes what follows.
"""

import json
import logging
import os
import shutil
import struct
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

from wandb import __version__
from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import LEVELDBLOG_HEADER_LEN, DataStore

from hposvc.journal.home import WANDB
from hposvc.tracking.projection import PARENT, MetricPoint, Projection, RunContent, RunEnd
from hposvc.tracking.sink import Batch, Sink, SinkSetting

NAMESPACE = uuid.UUID("0d2f2c3e-6a55-4b0e-9d5c-64b1b6d2c0a7")  # of the ids of runs
READER = "0.65.0"  # the oldest version that can read the records, as W&B itself writes it
LONGEST_TAG = 64  # characters
OWN = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})  # names that W&B needs itself
EXIT_CODES: Mapping[RunEnd, int] = {"FINISHED": 0, "FAILED": 1, "KILLED": 255}  # 255: Ctrl-C


messages: Any = wandb_internal_pb2  # has no type hints


class TransactionLog:
    """A run's file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._store: Any = DataStore()

    def cut(self) -> int:
        """Cut off an exit record, or a torn one; return the number of records before it."""
        if not self.path.exists():
            return 0
        if self.path.stat().st_size < LEVELDBLOG_HEADER_LEN:
            self.path.unlink()
            return 0
        self._store.open_for_scan(str(self.path))
        end, count = self._store._index, 0
        while (record := self._next()) is not None and not record.HasField("exit"):
            end, count = self._store._index, count + 1
        self._store.close()
        os.truncate(self.path, end)
        return count

    def append(self, records: Sequence[Any]) -> None:
        """Append records, and wait for the disk."""
        store = self._store
        if self.path.exists():
            store._fname, store._index = str(self.path), self.path.stat().st_size
            store._fp = self.path.open("ab")
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            store.open_for_write(str(self.path))
        try:
            for record in records:
                store.write(record)
            store._fp.flush()
            os.fsync(store._fp.fileno())
        finally:
            store.close()

    def _next(self) -> Any:
        """Return the next record; None: there is no whole one."""
        try:
            data = self._store.scan_data()
        except (AssertionError, IndexError, struct.error):  # torn
            return None
        return None if data is None else messages.Record.FromString(data)


@dataclass
class WandbRun:
    """A run as far as its records were made."""

    path: Path
    start: float  # seconds since 1970
    there: int  # records of the file, which are not written again
    made: int = 0
    step: int = -1  # of the last row
    held: list[MetricPoint] = field(default_factory=list)  # for the next row: their step has one
    status: RunEnd | None = None  # None: running


class WandB(Sink):
    """A sweep's runs in the folder wandb/ of its folder, as a group of W&B."""

    name: ClassVar[str] = "wandb"
    waits: ClassVar[bool] = True  # nobody reads the files before they are uploaded

    def __init__(self, setting: SinkSetting) -> None:
        self.path: Path = setting.folder / WANDB
        self._sweep, self._spec = setting.sweep, setting.spec
        self._runs: dict[str, WandbRun] = {}
        # It tells each opening of a file.
        logging.getLogger(DataStore.__module__).setLevel(logging.WARNING)

    def open(self) -> None:
        """Forget what was made: files are looked at as their runs begin."""
        self._runs = {}

    def resume_point(self, cursor: int, begun: Collection[str]) -> int:
        """Return 0: which records a file has is known by their count from the first event on."""
        return 0

    def clear(self) -> None:
        """Delete all files."""
        shutil.rmtree(self.path, ignore_errors=True)

    def send(self, batches: Sequence[Batch]) -> None:
        """Append the records that the files do not have yet, and wait for the disk."""
        records: dict[str, list[Any]] = {}
        for batch in batches:
            for key, entry in batch.entries.items():
                records.setdefault(key, []).extend(self._take_records(key, entry))
        for key, made in records.items():
            self._append(self._runs[key], made)

    def _append(self, run: WandbRun, records: Sequence[Any]) -> None:
        """Number the records of a run, and write those that its file does not have."""
        for record in records:
            run.made += 1
            record.num = run.made
        new = [record for record in records if record.num > run.there]
        if new:
            TransactionLog(run.path).append(new)

    def _take_records(self, key: str, entry: RunContent) -> list[Any]:
        """Take over what an event says of a run, and return its records."""
        records = []
        if entry.start is not None:
            self._runs[key] = run = self._begin(key, entry.start)
            versions = messages.VersionInfo(producer=__version__, min_consumer=READER)
            header = messages.Record(header=messages.HeaderRecord(version_info=versions))
            records += [header, self._description(key, run, entry)]
        run = self._runs[key]
        records += _rows(run, entry.points)
        if entry.tags:
            run.status = entry.status
            records.append(_summary(entry.tags))
        return records

    def _begin(self, key: str, start_ms: int) -> WandbRun:
        # Another sweep may get the id of a removed one, whose runs stay in W&B.
        origin = f"{self._sweep.id} {self._sweep.created} {key}"
        identifier = uuid.uuid5(NAMESPACE, origin).hex
        began = datetime.fromtimestamp(start_ms / 1000, UTC)
        folder = f"offline-run-{began:%Y%m%d_%H%M%S}-{identifier}"
        path = self.path / folder / f"run-{identifier}.wandb"
        return WandbRun(path, start_ms / 1000, TransactionLog(path).cut())

    def _description(self, key: str, run: WandbRun, entry: RunContent) -> Any:
        tags = [f"{name}={value}" for name, value in self._spec.tags.items()]
        record = messages.RunRecord(
            run_id=run.path.stem.removeprefix("run-"),
            project=self._spec.project,
            run_group=self._sweep.id,
            job_type="sweep" if key == PARENT else "trial",
            display_name=key or self._sweep.id,
            notes=f"hposvc status {self._sweep.id}",
            tags=[tag for tag in tags if len(tag) <= LONGEST_TAG],
        )
        for name, value in entry.params.items():
            record.config.update.add(key=name, value_json=json.dumps(value))
        record.start_time.FromMilliseconds(round(1000 * run.start))
        return messages.Record(run=record)

    def finish(self, projection: Projection) -> None:
        """If the sweep has ended, end its runs: until then they may change."""
        if projection.state.finished:
            for run in self._runs.values():
                if run.status is not None:
                    end = messages.RunExitRecord(exit_code=EXIT_CODES[run.status])
                    TransactionLog(run.path).append([messages.Record(num=run.made + 1, exit=end)])


def _rows(run: WandbRun, points: Sequence[MetricPoint]) -> Iterator[Any]:
    """Yield the rows of a run's history and their values as the run's summary.

    Steps of rows grow: W&B has one row for each. A value that changes at a step that has a row
    already, such as a parameter's after a report, is in the next row.
    """
    for (time, step), group in groupby(points, lambda point: (point.time, point.step)):
        run.held += group
        if step > run.step:
            run.step = step
            values: dict[str, object] = {
                _free_name(parameter.name): parameter.value for parameter in run.held
            }
            run.held.clear()
            now = time / 1000
            values |= {"_step": step, "_timestamp": now, "_runtime": round(now - run.start, 3)}
            row = messages.HistoryRecord(step=messages.HistoryStep(num=step))
            for name, value in values.items():
                row.item.add(nested_key=[name], value_json=json.dumps(value))
            yield messages.Record(history=row)
            yield _summary(values)


def _summary(values: Mapping[str, object]) -> Any:
    record = messages.SummaryRecord()
    for name, value in values.items():
        record.update.add(nested_key=[name], value_json=json.dumps(value))
    return messages.Record(summary=record)


def _free_name(metric: str) -> str:
    """Return a metric's name; with an underscore more if W&B needs the name, or one so made."""
    return f"_{metric}" if f"_{metric.lstrip('_')}" in OWN and metric[:1] == "_" else metric
