"""Sweeps written by hand, and outboxes that send recorded sweeps in the test's process."""

import os
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from hposvc import spec as specs
from hposvc.events import Attached, Closed, Event, Finished, Ordered, Proposed, Reported
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.tracking.mlflow_client import Tracker
from hposvc.tracking.mlflow_sink import MLflowSink
from hposvc.tracking.outbox import Outbox, follow
from hposvc.tracking.sink import SinkSetting
from trainables.order import Order


def mlflow_outbox(
    home: Home, row: SweepRow, journal: Journal, tracker: Tracker | None = None
) -> Outbox:
    """Return an outbox to MLflow; to the home's own, unless a tracker is given."""
    spec = specs.restore(row.spec)
    sink = MLflowSink(SinkSetting(home, journal, row, spec), tracker)
    return Outbox(row, spec, journal, lambda: sink)


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
        trial, params = f"t{number:04d}", {"lr": number / 1000, **seeds}
        order = Order(number, trial, params, None, 1, 3)
        add(journal, row, Proposed(now, trial, params, {}, 3), Ordered(now, order))
    return row, journal


def add(journal: Journal, row: SweepRow, *events: Event) -> None:
    journal.append(row.id, journal.last(row.id), list(events))


def report(row: SweepRow, trial: int, step: int, **metrics: float) -> Reported:
    return Reported(row.created + step, trial, f"t{trial:04d}", step, metrics)


def end(row: SweepRow, journal: Journal) -> None:
    """Append what ends a sweep that a user stops."""
    now = row.created + 9
    add(journal, row, Closed(now, "user"), Finished(now, "STOPPED", "user"))
