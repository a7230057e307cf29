"""Runs in files of W&B, as W&B's own reader reads them."""

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import outboxes
import psutil
import pytest
from outboxes import begun, complete, end, fail_and_stop, outbox_to, params_of, reports_of, send_all
from waiting import until

from hposvc import spec as specs
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.tracking.outbox import Outbox
from hposvc.tracking.sink import SinkSetting

pytest.importorskip("wandb")
from wandb_files import Read, read

from hposvc.tracking.wandb import WandB

ALONE = {"tracking": {"send_to": ["wandb"]}}
TAGGED = {"seed": 2**70, "tags": {"team": "ä", "long": "x" * 70}, **ALONE}


def outbox(home: Home, row: SweepRow, journal: Journal) -> Outbox:
    return outbox_to(WandB, home, row, journal)


def files(home: Home, row: SweepRow) -> list[Path]:
    return sorted(home.folder(row.id, None).glob("wandb/offline-run-*/run-*.wandb"))


def contents(home: Home, row: SweepRow) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in files(home, row)}


def runs_of(home: Home, row: SweepRow) -> dict[str, Read]:
    """Return a sweep's runs by name; no name may be there twice."""
    runs = [read(path) for path in files(home, row)]
    named = {run.run.display_name: run for run in runs}
    assert len(named) == len(runs)
    return named


@pytest.fixture
def stored(simulated, home: Home) -> tuple[SweepRow, Journal, dict[str, bytes]]:
    """Return a simulated sweep, and what a writer wrote that nobody disturbed."""
    row, journal = simulated(**ALONE)
    send_all(outbox(home, row, journal))
    assert journal.cursor(row.id, "wandb") == journal.last(row.id)
    return row, journal, contents(home, row)


def test_wandb_reads_every_report_of_every_trial(stored, home: Home):
    row, journal, _ = stored
    reports = reports_of(row, journal)
    runs = runs_of(home, row)
    assert set(runs) == {*reports, row.id}
    diverged = 0
    for trial, expected in reports.items():
        rows = [each for each in runs[trial].rows if "loss" in each]
        assert [each["_step"] for each in rows] == [event.step for event in expected]
        for each, event in zip(rows, expected, strict=True):
            assert each["acc@1"] == event.metrics["acc@1"]
            assert repr(each["loss"]) == repr(float(event.metrics["loss"]))
            diverged += math.isnan(each["loss"])
        steps = [each["_step"] for each in runs[trial].rows]
        assert steps == sorted(set(steps))
    assert diverged > 0


def test_a_run_has_its_sweep_its_parameters_and_its_outcome(stored, home: Home):
    row, journal, _ = stored
    runs = runs_of(home, row)
    for trial, params in params_of(row, journal).items():
        run = runs[trial]
        assert run.config == params
        assert (run.run.run_group, run.run.job_type) == (row.id, "trial")
        assert run.summary["hposvc.state"] in ("COMPLETED", "STOPPED")
        assert run.exits == [0]
    assert len({run.run.run_id for run in runs.values()}) == len(runs)
    best = [run for run in runs.values() if run.summary.get("hposvc.best") == "true"]
    assert len(best) == 1
    sweep = runs[row.id]
    assert (sweep.run.job_type, sweep.run.project) == ("sweep", row.project)
    assert (sweep.summary["hposvc.state"], sweep.exits) == ("COMPLETED", [0])
    assert (sweep.rows[-1]["_step"], sweep.rows[-1]["trials"]) == (12, 12)
    assert sweep.rows[-1]["best/loss"] == min(each["loss"] for each in best[0].rows)


def test_runs_that_are_there_are_not_written_again_but_those_of_a_longer_sweep(stored, home: Home):
    row, journal, written = stored
    send_all(outbox(home, row, journal))
    assert contents(home, row) == written
    end(row, journal)
    send_all(outbox(home, row, journal))
    assert contents(home, row).keys() == written.keys()
    assert contents(home, row) != written


KILLED = """
import os, signal, sys
sys.path[:0] = sys.argv[3:]
import psutil
from outboxes import send_all
from test_wandb import outbox
from hposvc.journal.home import Home
from hposvc.tracking.wandb import WandB
from pathlib import Path

def write_and_die(self, *args):
    write(self, *args)
    print(*(child.pid for child in psutil.Process().children()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

write, WandB._write = WandB._write, write_and_die
home = Home.of(Path(sys.argv[1]), {})
journal = home.journal()
send_all(outbox(home, journal.find(sys.argv[2]), journal))
"""


@pytest.mark.long
def test_a_killed_writer_leaves_no_process_and_its_runs_are_written_anew(stored, home: Home):
    row, journal, _ = stored
    whole = {name: run.steady() for name, run in runs_of(home, row).items()}
    WandB(SinkSetting(home, journal, row, specs.restore(row.spec))).clear()
    places = [f"{Path(module.__file__).parent}" for module in (outboxes, sys.modules[__name__])]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, home.path, row.id, *places],
        stdout=subprocess.PIPE,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL
    services = [*map(int, done.stdout.split())]
    assert services
    until(lambda: not any(map(psutil.pid_exists, services)))
    assert 0 < len(files(home, row)) < len(whole)
    send_all(outbox(home, row, journal))
    assert {name: run.steady() for name, run in runs_of(home, row).items()} == whole


def test_nothing_is_printed_nor_written_or_read_elsewhere(
    simulated, home: Home, tmp_path: Path, monkeypatch, capfd
):
    """A user's own settings of W&B do not get into the runs, and stay as they are."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "settings").write_text("[default]\nentity = somebody\n")
    for name in ("HOME", "WANDB_DIR", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, f"{elsewhere}")
    monkeypatch.setenv("WANDB_RUN_ID", "mine")
    monkeypatch.setenv("WANDB_MODE", "online")
    row, journal = simulated(**ALONE)
    before = dict(os.environ)
    capfd.readouterr()
    send_all(outbox(home, row, journal))
    assert capfd.readouterr() == ("", "")
    assert dict(os.environ) == before
    assert [path.name for path in elsewhere.rglob("*")] == ["settings"]
    runs = runs_of(home, row).values()
    assert {run.run.entity for run in runs} == {""}
    assert "mine" not in {run.run.run_id for run in runs}


def test_trials_that_failed_stopped_or_never_reported_are_told_apart(home: Home):
    row, journal = begun(home, **TAGGED)
    fail_and_stop(row, journal, _step=9.0)
    send_all(outbox(home, row, journal))
    assert files(home, row) == []  # trials may change until the end
    complete(row, journal)
    send_all(outbox(home, row, journal))
    runs = runs_of(home, row)
    failed, stopped, sweep = runs["t0001"], runs["t0002"], runs[row.id]
    assert (failed.summary["hposvc.state"], failed.exits, failed.rows) == ("FAILED", [1], [])
    assert (failed.summary["hposvc.reason"], failed.config["seed"]) == ("user", 2**70)
    assert (stopped.summary["hposvc.state"], stopped.exits) == ("STOPPED", [0])
    assert [each["loss"] for each in stopped.rows] == [math.inf, 0.5]
    assert (stopped.rows[1]["_step"], stopped.rows[1]["__step"]) == (2, 9.0)
    assert (sweep.exits, list(sweep.run.tags)) == ([0], ["team=ä"])
