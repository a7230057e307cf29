"""Outboxes that send recorded sweeps to a sink, in the test's process."""

import os
from contextlib import closing

from hposvc import spec as specs
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.tracking.mlflow_client import Tracker
from hposvc.tracking.mlflow_sink import MLflowSink
from hposvc.tracking.outbox import Outbox, follow
from hposvc.tracking.sink import Setting


def mlflow_outbox(
    home: Home, row: SweepRow, journal: Journal, tracker: Tracker | None = None
) -> Outbox:
    """Return an outbox to MLflow; to the home's own, unless a tracker is given."""
    spec = specs.restore(row.spec)
    sink = MLflowSink(Setting(home, journal, row, spec), tracker)
    return Outbox(row, spec, journal, lambda: sink)


def send_all(outbox: Outbox) -> None:
    """Send a sweep as a recorder does whose driver is gone."""
    reading, writing = os.pipe()
    os.close(writing)
    with closing(os.fdopen(reading)) as gone:
        assert follow(outbox, gone.fileno())
