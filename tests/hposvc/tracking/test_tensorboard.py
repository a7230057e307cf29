"""Runs as TensorBoard's files, as TensorBoard reads them: each record once, if writers die."""

import math
from pathlib import Path

import pytest
from outboxes import outbox_to, params_of, reports_of, send_all
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from hposvc.journal.home import Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.tracking.outbox import Outbox
from hposvc.tracking.tensorboard import FILE, TensorBoard

ALONE = {"tracking": {"send_to": ["tensorboard"]}}


def outbox(home: Home, row: SweepRow, journal: Journal) -> Outbox:
    return outbox_to(TensorBoard, home, row, journal)


def folder_of(home: Home, row: SweepRow) -> Path:
    return home.folder(row.id, None) / "tensorboard"


def contents(home: Home, row: SweepRow) -> dict[str, bytes]:
    files = folder_of(home, row).glob(f"*/{FILE}")
    return {file.parent.name: file.read_bytes() for file in files}


def read(home: Home, row: SweepRow, run: str) -> EventAccumulator:
    return EventAccumulator(str(folder_of(home, row) / run)).Reload()


@pytest.fixture
def written(simulated, home: Home) -> tuple[SweepRow, Journal, dict[str, bytes]]:
    """Return a simulated sweep, and the files of a writer that nobody disturbed."""
    row, journal = simulated(**ALONE)
    send_all(outbox(home, row, journal))
    assert journal.cursor(row.id, "tensorboard") == journal.last(row.id)
    return row, journal, contents(home, row)


def test_tensorboard_reads_every_report_of_every_trial(written, home):
    row, journal, files = written
    reports = reports_of(row, journal)
    assert set(files) == {*reports, "sweep"}
    for trial, expected in reports.items():
        points = read(home, row, trial).Scalars("loss")
        assert [point.step for point in points] == [event.step for event in expected]
        for point, event in zip(points, expected, strict=True):
            loss = event.metrics["loss"]
            assert point.value == pytest.approx(loss) or math.isnan(loss) or math.isinf(loss)
            assert point.wall_time == pytest.approx(row.created + event.time, abs=0.01)


def test_the_tab_of_hyperparameters_has_those_of_every_trial(written, home):
    row, journal, _ = written
    for trial, params in params_of(row, journal).items():
        plugin = read(home, row, trial).PluginTagToContent("hparams")
        begun = plugin_data_pb2.HParamsPluginData.FromString(
            plugin["_hparams_/session_start_info"]
        ).session_start_info
        values = {name: value for name, value in begun.hparams.items()}
        assert values.keys() == params.keys()
        assert values["lr"].number_value == params["lr"]
        assert "_hparams_/session_end_info" in plugin
