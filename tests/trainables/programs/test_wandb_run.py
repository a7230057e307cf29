"""Runs that functions leave open, on the real wandb in offline mode."""

import sys
from pathlib import Path

import pytest

from trainables.order import Order
from trainables.runtime.assignment import Assignment, SlotConfig, carry_out
from trainables.training import Training
from trainables.worker import LocalLink

wandb = pytest.importorskip("wandb")
from wandb.proto.wandb_internal_pb2 import Record  # noqa: E402
from wandb.sdk.internal.datastore import DataStore  # noqa: E402

TRAINABLE = """
import wandb

def leaves_it_open(params, worker):
    run = wandb.init(mode="offline", config=params)
    run.log({"loss": run.config.lr})
    if run.config.lr > 1:
        raise ValueError("too large")
    worker.report(1, {"loss": run.config.lr})

def uses_the_open_one(params, worker):
    worker.report(1, {"loss": wandb.config.lr})
"""


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    """Return a function that carries out an order in this process; returns outcome and reports."""
    (tmp_path / "mine.py").write_text(TRAINABLE)
    for name, text in {"WANDB_DIR": f"{tmp_path}", "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, text)

    def run(name: str, lr: float):
        trainable = f"{tmp_path / 'mine.py'}:{name}"
        config = SlotConfig(trainable, Training(), ("loss",), 1, 1, 0, tmp_path)
        link = LocalLink()
        order = Order(1, "t0001", {"lr": lr}, None, 1, 1)
        return carry_out(config, Assignment(order), 0, link), link.reports

    yield run
    wandb.teardown()


def exit_codes(folder: Path) -> list[int]:
    """Return the exit codes of finished runs, in the order of their files' times."""
    codes = []
    for file in sorted(
        folder.glob("wandb/offline-run-*/run-*.wandb"), key=lambda f: f.stat().st_mtime
    ):
        log = DataStore()
        log.open_for_scan(str(file))
        while (data := log.scan_data()) is not None:
            record = Record.FromString(data)
            codes += [record.exit.exit_code] * record.HasField("exit")
        log.close()
    return codes


def test_each_trial_has_a_run_of_its_own_that_ends_as_the_trial_does(attempt, tmp_path):
    for lr in (0.5, 0.25, 2.0):
        outcome, reports = attempt("leaves_it_open", lr)
        assert [report.metrics["loss"] for report in reports] == ([lr] if lr < 1 else [])
        assert outcome.kind == ("ended" if lr < 1 else "user")
        assert sys.modules["wandb"].run is None
    wandb.teardown()  # its process may still be writing the last run's end
    assert exit_codes(tmp_path) == [0, 0, 1]


def test_a_run_that_was_open_before_the_trial_stays_open(attempt):
    with wandb.init(mode="offline", config={"lr": 0.75}) as run:
        outcome, reports = attempt("uses_the_open_one", 0.5)
        assert outcome.kind == "ended", outcome.message
        assert reports[0].metrics == {"loss": 0.75}
        assert wandb.run is run


def test_an_error_of_wandb_is_no_failure_of_the_trial_but_a_leak(attempt, tmp_path, monkeypatch):
    def breaks(run, exit_code=None):
        raise OSError("no network")

    monkeypatch.setattr(wandb.Run, "finish", breaks)
    outcome, _ = attempt("leaves_it_open", 0.5)
    monkeypatch.undo()
    wandb.run.finish()
    assert outcome.kind == "ended"
    assert "W&B could not finish its run: no network" in outcome.leaks
