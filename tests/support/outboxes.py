"""Sweeps written by hand, and outboxes that send recorded sweeps in the test's process."""

import math
import os
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from sweep_stories import begin

from hposvc import spec as specs
from hposvc.events import (
    Attached,
    Closed,
    Decided,
    Ended,
    Event,
    Failed,
    Finished,
    Proposed,
    Reported,
)
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.tracking.mlflow_client import Tracker
from hposvc.tracking.mlflow_sink import MLflowSink
from hposvc.tracking.outbox import Outbox, follow
from hposvc.tracking.sink import Sink, SinkSetting


def mlflow_outbox(
    home: Home, row: SweepRow, journal: Journal, tracker: Tracker | None = None
) -> Outbox:
    """Return an outbox to MLflow; to the home's own, unless a tracker is given."""
    sink = MLflowSink(SinkSetting(home, journal, row, specs.restore(row.spec)), tracker)
    return outbox_to(lambda setting: sink, home, row, journal)


def outbox_to(
    sink_type: Callable[[SinkSetting], Sink], home: Home, row: SweepRow, journal: Journal
) -> Outbox:
    """Return an outbox to a sink."""
    spec = specs.restore(row.spec)
    return Outbox(row, spec, journal, lambda: sink_type(SinkSetting(home, journal, row, spec)))


def reports_of(row: SweepRow, journal: Journal) -> dict[str, list[Reported]]:
    """Return a sweep's reports by trial."""
    reports: dict[str, list[Reported]] = {}
    for _, event in journal.read(row.id):
        if isinstance(event, Reported):
            reports.setdefault(event.trial, []).append(event)
    return reports


def params_of(row: SweepRow, journal: Journal) -> dict[str, dict[str, Any]]:
    """Return the parameters of a sweep's trials."""
    events = [event for _, event in journal.read(row.id)]
    return {event.trial: dict(event.params) for event in events if isinstance(event, Proposed)}


def send_all(outbox: Outbox) -> None:
    """Send a sweep as a recorder does whose driver is gone."""
    reading, writing = os.pipe()
    os.close(writing)
    with closing(os.fdopen(reading)) as gone:
        assert follow(outbox, gone.fileno())


def told_once(kept: Path, home: Home, tell: Callable[[], object]) -> tuple[SweepRow, Journal]:
    """Return the home's only sweep, told to its MLflow, which takes seconds.

    Args:
        kept: a folder in which the databases are kept for the next tests.
    """
    if not list(kept.iterdir()):
        tell()
        for file in home.path.glob("*.db*"):
            shutil.copy(file, kept)
    for file in home.path.glob("*.db*"):
        file.unlink()
    shutil.copytree(kept, home.path, dirs_exist_ok=True)
    journal = home.journal()
    return journal.sweeps()[0], journal


def begun(
    home: Home,
    identifier: str = "by-hand",
    count: int = 2,
    seed: int | None = None,
    **changes: Any,
) -> tuple[SweepRow, Journal]:
    """Create a sweep whose trials are ordered and have not reported yet; a seed is a parameter."""
    seeds = {} if seed is None else {"seed": seed}
    ranges = {name: {"values": [value, 1]} for name, value in seeds.items()}
    spec = specs.load(
        {
            "project": "begun",
            "trainable": "trainables.zoo.digits:DigitsCNN",
            "metric": {"name": "loss", "goal": "minimize"},
            "fidelity": {"max": 3},
            "parameters": {"lr": {"min": 1e-5, "max": 1e-1, "log": True}, **ranges},
            "trials": {"max": 40, "parallel": 2},
            **changes,
        }
    )
    now = time.time()
    row = SweepRow(identifier, spec.name, spec.project, now, specs.dump(spec), {})
    journal = home.journal()
    assert journal.create(row)
    add(journal, row, Attached(now, "here:1"))
    for number in range(1, count + 1):
        add(journal, row, *begin(number, now, {"lr": number / 1000, **seeds}, 3))
    return row, journal


def add(journal: Journal, row: SweepRow, *events: Event) -> None:
    journal.append(row.id, journal.last(row.id), list(events))


def report(row: SweepRow, trial: int, step: int, **metrics: float) -> Reported:
    return Reported(row.created + step, trial, f"t{trial:04d}", step, metrics)


def fail_and_stop(row: SweepRow, journal: Journal, **others: float) -> None:
    """Let the first trial fail without a report, and the second be stopped after two."""
    add(
        journal,
        row,
        report(row, 2, 1, loss=math.inf),
        report(row, 2, 2, loss=0.5, **others),
        Failed(row.created + 3, 1, "t0001", "user", "Traceback\nValueError: lr"),
        Decided(row.created + 4, "t0002", 2, 2, "stop", "rung"),
        Ended(row.created + 5, 2, "t0002"),
    )


def complete(row: SweepRow, journal: Journal) -> None:
    now = row.created + 6
    add(journal, row, Closed(now, "trials"), Finished(now + 1, "COMPLETED", "trials"))


def end(row: SweepRow, journal: Journal) -> None:
    """Append what ends a sweep that a user stops."""
    now = row.created + 9
    add(journal, row, Closed(now, "user"), Finished(now, "STOPPED", "user"))
