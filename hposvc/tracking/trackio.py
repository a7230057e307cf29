"""Runs in Trackio, Hugging Face's tracker without a server: a project for each sweep.

`trackio.init` and `trackio.log` would keep points in threads until they are written, under ids made
up at that moment, and watch this process's CPU. So rows go straight to Trackio's storage. They
follow from the journal alone, and the id of each names its event; of two rows with the same id,
Trackio keeps the first. So a writer that begins sends everything again, and nothing is there twice.
"""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import ClassVar, NamedTuple

from trackio.sqlite_storage import SQLiteStorage
from trackio.utils import RESERVED_KEYS

from hposvc.tracking.projection import PARENT, RunContent
from hposvc.tracking.sink import Batch, Sink, SinkSetting
from searchers import Value

SWEEP = "sweep"  # the name of the sweep's own run
CREATED = "_Created"  # Trackio's own key for the time at which a run began
NAMESPACE = uuid.UUID("649e8e43-94c5-48ae-be07-3952dbccf2f7")  # of the ids of runs
LARGEST = 2**63 - 1  # of the integers in Trackio's storage


class TrackioRow(NamedTuple):
    """Metrics of a run at a step, as Trackio stores them."""

    id: str
    time: str
    step: int
    metrics: dict[str, float]


@dataclass
class TrackioRun:
    """A run as far as it was sent."""

    id: str
    name: str
    begin: TrackioRow  # without metrics: Trackio lists only runs that have a row
    config: dict[str, Value] = field(default_factory=dict)


class Trackio(Sink):
    """A sweep's runs in a project of Trackio that has the sweep's id as its name."""

    name: ClassVar[str] = "trackio"
    waits: ClassVar[bool] = True  # Trackio takes some 6 ms for a run, however few rows come

    def __init__(self, setting: SinkSetting) -> None:
        self.project: str = setting.sweep.id
        # Another sweep may get the id of a removed one, whose runs stay in Trackio.
        self._origin = f"{setting.sweep.id} {setting.sweep.created}"
        self._runs: dict[str, TrackioRun] = {}

    def open(self) -> None:
        """Forget what was sent.

        Raises:
            ValueError: the sweep's id begins or ends as names of Trackio's own files do.
        """
        SQLiteStorage.validate_project_name(self.project)
        self._runs = {}

    def resume_point(self, cursor: int, begun: Collection[str]) -> int:
        """Return 0: everything is sent again, and Trackio leaves out the rows that it has."""
        return 0

    def clear(self) -> None:
        """Delete the sweep's runs."""
        for record in SQLiteStorage.get_run_records(self.project):
            SQLiteStorage.delete_run(self.project, record["name"] or "", run_id=record["id"])

    def send(self, batches: Sequence[Batch]) -> None:
        """Store rows, and the configurations that changed, with a transaction for each run."""
        rows: dict[str, list[TrackioRow]] = {}
        changed: set[str] = set()
        for batch in batches:
            for key, entry in batch.entries.items():
                rows.setdefault(key, []).extend(self._take_rows(batch.seq, key, entry))
                if entry.tags:
                    changed.add(key)
        names = {
            record["id"]: record["name"] for record in SQLiteStorage.get_run_records(self.project)
        }
        for key, new in rows.items():
            run = self._runs[key]
            run.name = names.get(run.id) or run.name  # people rename runs
            self._store(run, [run.begin, *new], run.config if key in changed else None)

    def _take_rows(self, seq: int, key: str, entry: RunContent) -> list[TrackioRow]:
        """Take over what an event says of a run, and return its rows."""
        if entry.start is not None:
            identifier = uuid.uuid5(NAMESPACE, f"{self._origin} {key}").hex
            begin = TrackioRow(f"{identifier}:begin", _iso(entry.start), 0, {})
            name = SWEEP if key == PARENT else key
            self._runs[key] = TrackioRun(identifier, name, begin, {CREATED: begin.time})
        run = self._runs[key]
        for name, value in entry.params.items():
            is_too_large = isinstance(value, int) and abs(value) > LARGEST  # to store as a number
            run.config[name] = str(value) if is_too_large else value
        run.config |= entry.tags
        rows = []
        # Metrics reported together share a row.
        groups = groupby(entry.points, lambda point: (point.time, point.step))
        for part, ((time, step), points) in enumerate(groups):
            metrics = {_free_name(point.name): point.value for point in points}
            rows.append(TrackioRow(f"{run.id}:{seq}:{part}", _iso(time), step, metrics))
        return rows

    def _store(
        self, run: TrackioRun, rows: Sequence[TrackioRow], config: dict[str, Value] | None
    ) -> None:
        SQLiteStorage.bulk_log(
            self.project,
            run.name,
            [row.metrics for row in rows],
            steps=[row.step for row in rows],
            timestamps=[row.time for row in rows],
            config=config,
            log_ids=[row.id for row in rows],
            run_id=run.id,
        )


def _free_name(metric: str) -> str:
    """Return the name that `trackio.log` gives a metric whose name Trackio needs itself."""
    return f"__{metric}" if metric in RESERVED_KEYS or metric.startswith("__") else metric


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()
