"""The recorder process: with a driver, without one, and while the tracker is out of reach."""

import math
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from mlflow import MlflowClient
from outboxes import add, begun, end, report
from simulated_sweeps import make_spec
from waiting import until

from hposvc import api
from hposvc import spec as specs
from hposvc.events import Event
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.state.sweep import SweepState
from hposvc.tracking import recorder_process
from hposvc.tracking.mlflow_server import MOST_SIMULATED, hide_passwords, is_recorded
from hposvc.tracking.reconcile import Reconciler
from hposvc.tracking.recorder_process import Recorder, RestartedProcess
from trainables.runtime import output


def recorder_of(home: Home, row: SweepRow, journal: Journal) -> Recorder:
    return Recorder(home, row.id, specs.load(row.spec), journal)


def recorders(home: Home, sweep: str) -> list[psutil.Process]:
    """Return the processes that hold the sweep's recorder lock open."""
    lock = str(home.folder(sweep, None) / "recorder-mlflow.lock")
    holders = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(file.path == lock for file in process.open_files()):
                holders.append(process)
    return holders


def begin(home: Home, identifier: str, count: int, **changes: object) -> tuple[SweepRow, Journal]:
    """Create a sweep on Ray in which `count` trials have reported two steps of three."""
    row, journal = begun(home, identifier, count, **changes)
    for number in range(1, count + 1):
        add(journal, row, *(report(row, number, step, loss=1 / step / number) for step in (1, 2)))
    return row, journal


def assert_complete(tracked, row: SweepRow, count: int) -> None:
    """Check that each trial of `begin` has a single run with two points, and none is RUNNING."""
    runs = tracked.runs(row.id)
    assert len(runs) == count + 1
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    for number in range(1, count + 1):
        run = runs[f"t{number:04d}"]
        assert run.data.params == {"lr": str(number / 1000)}
        assert tracked.points(run) == [
            (name, step, round(1000 * (row.created + step)), repr(1 / step / number))
            for name in ("loss", "objective")
            for step in (1, 2)
        ]


def test_a_simulated_sweep_is_told_when_the_block_is_left(simulated, home: Home, tracked):
    row, journal = simulated()
    with recorder_of(home, row, journal) as recorder:
        pass
    assert recorder.behind == 0
    runs = tracked.runs(row.id)
    assert len(runs) == 13
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    log = home.folder(row.id, None) / "logs" / "recorder.log"
    assert log.read_text() == ""


def test_its_log_is_bounded(simulated, home: Home, monkeypatch):
    monkeypatch.setattr(output, "MOST", 4000)
    monkeypatch.setattr(output, "KEPT", 1000)
    row, journal = simulated(tracking={"send_to": ["json_lines"]})
    log = home.folder(row.id, None) / "logs" / "recorder.log"
    with recorder_of(home, row, journal) as recorder:
        recorder.on_events(None, [])
        log.write_text("a sink's word\n" * 1000)
        recorder.on_events(None, [])
    assert log.read_text().startswith("a sink's word\n")
    assert output.DROPPED.search(log.read_bytes())
    assert log.stat().st_size < 4000


TRAIN = """
import time
from pathlib import Path

def train(params, worker):
    worker.report(1, {"loss": params["lr"]})
    for step, awaited in ((2, "killed"), (3, "agreed")):
        deadline = time.monotonic() + 250.0
        while not Path(awaited).exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        worker.report(step, {"loss": params["lr"] / step})
"""


@dataclass
class Killer:
    """A watcher that kills the recorder once it has sent a trial's first step.

    The trial then reports a second step, and a third one when MLflow has the second.
    """

    home: Home
    journal: Journal
    row: SweepRow
    folder: Path  # where the trial looks for the word to go on
    points: int = 0  # that MLflow had right while the sweep ran

    def on_events(self, state: SweepState, events: Sequence[Event]) -> None:
        """Kill the recorder, or compare MLflow with the journal."""
        step = max((trial.step for trial in state.trials.values()), default=0)
        sent = self.journal.cursor(self.row.id, "mlflow") == self.journal.last(self.row.id)
        if step == 1 and sent and not (self.folder / "killed").exists():
            [process] = recorders(self.home, self.row.id)
            process.kill()
            (self.folder / "killed").touch()
        elif step == 2 and sent and not self.points:
            comparison = Reconciler(self.home, self.journal, self.row).compare()
            assert (comparison.stance, comparison.differences) == ("driven", ())
            self.points = comparison.points
            (self.folder / "agreed").touch()


@pytest.mark.long
def test_one_that_is_killed_in_mid_sweep_is_replaced_while_the_sweep_runs(
    home: Home, tracked, tmp_path: Path
):
    (tmp_path / "train.py").write_text(TRAIN)
    trainable = f"{tmp_path / 'train.py'}:train"
    local = {"engine": "local", "trainable": trainable, "folder": f"{tmp_path}"}
    spec = make_spec(**local, fidelity={"max": 3}, trials={"max": 1})
    sweeps = api.Sweeps(home, home.journal())
    row = api.create(sweeps, spec, "killed-1")
    killer = Killer(home, sweeps.journal, row, tmp_path)
    record = api.drive(sweeps, row, [killer])
    assert record.state.finished
    assert record.behind == 0
    assert killer.points > 0
    comparison = Reconciler(home, sweeps.journal, row).compare()
    assert comparison.agrees
    assert comparison.points > killer.points
    assert len(tracked.runs(row.id)) == 2


def test_one_that_dies_again_and_again_is_given_up_only_at_the_end(monkeypatch, caplog):
    """A clock that steps by 10 ms a look shows the pauses between its starts."""
    starts, now = [], [0.0]

    def start() -> subprocess.Popen[str]:
        starts.append(now[0])
        if len(starts) == 3:
            raise OSError("no memory")
        process = subprocess.Popen(["false"], stdin=subprocess.PIPE, text=True)
        process.wait()
        return process

    monkeypatch.setattr(recorder_process, "time", SimpleNamespace(monotonic=lambda: now[0]))
    restarted = RestartedProcess("it", start)
    while now[0] < 200.0:
        assert not restarted.tend()
        now[0] += 0.01
    pauses = [later - earlier for earlier, later in pairwise(starts)]
    assert pauses == pytest.approx([0.0, 1, 2, 4, 8, 16, 30, 30, 30, 30, 30], abs=0.02)
    restarted.close(math.inf)
    closed_at, while_open = now[0], len(starts)
    while restarted.is_awaited():
        now[0] += 0.01
    assert now[0] - closed_at == pytest.approx(61, abs=1)
    assert len(starts) == while_open + 6
    assert caplog.messages.count("it died (exit code 1); it starts again") == 2
    assert "it can't start: no memory" in caplog.messages


@pytest.mark.full
def test_a_trial_is_told_its_run(home: Home, tracked):
    row, journal = begin(home, "told-1", 1)
    with recorder_of(home, row, journal) as recorder:
        until(lambda: recorder.environment("t0002"))
        variables = recorder.environment("t0002")
        run = tracked.runs(row.id)["t0002"]
        assert variables == {
            "MLFLOW_RUN_ID": run.info.run_id,
            "MLFLOW_EXPERIMENT_ID": run.info.experiment_id,
            "MLFLOW_TRACKING_URI": home.tracking_uri,
        }
        assert recorder.environment("t0041") == {}
        end(row, journal)
    assert sorted(tracked.runs(row.id)) == ["", "t0001"]


@pytest.mark.full
def test_run_ids_are_kept_when_a_sweep_is_resumed(home: Home, tracked):
    row, journal = begin(home, "kept-1", 2)
    recorder = recorder_of(home, row, journal).__enter__()
    until(lambda: journal.cursor(row.id, "mlflow"))
    recorder.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    before = {name: run.info.run_id for name, run in tracked.runs(row.id).items()}
    assert sorted(before) == ["", "t0001", "t0002"]
    with recorder_of(home, row, journal):
        end(row, journal)
    assert {name: run.info.run_id for name, run in tracked.runs(row.id).items()} == before
    assert_complete(tracked, row, 2)


DRIVER = """
import os, signal, sys
from pathlib import Path
from hposvc import spec as specs
from hposvc.journal.home import Home
from hposvc.tracking.recorder_process import Recorder
home = Home.of(Path(sys.argv[1]), {})
journal = home.journal()
row = journal.find(sys.argv[2])
with Recorder(home, row.id, specs.load(row.spec), journal) as recorder:
    recorder.on_events(None, [])
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_when_its_driver_is_killed_it_tells_the_rest_and_ends(home: Home, tracked):
    row, journal = begin(home, "orphan-1", 3)
    subprocess.run([sys.executable, "-c", DRIVER, str(home.path), row.id], check=False)
    until(lambda: journal.cursor(row.id, "mlflow") == journal.last(row.id))
    until(lambda: not recorders(home, row.id))
    assert sorted(tracked.runs(row.id)) == ["", "t0001", "t0002", "t0003"]


@pytest.mark.full
def test_two_that_make_the_database_at_once_do_not_fail(tmp_path: Path):
    home = Home.of(tmp_path, {})
    rows = [begin(home, f"both-{number}", 1) for number in (1, 2)]
    for row, journal in rows:
        end(row, journal)
    both = [recorder_of(home, row, journal).__enter__() for row, journal in rows]
    for recorder in both:
        recorder.__exit__(None, None, None)
    assert [recorder.behind for recorder in both] == [0, 0]
    logs = [home.folder(row.id, None) / "logs" / "recorder.log" for row, _ in rows]
    assert [log.read_text() for log in logs] == ["", ""]


@contextmanager
def server(folder: Path, port: int) -> Iterator[str]:
    """Run a tracking server on this port; its database outlives it."""
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--workers=1"),
        *("--host=127.0.0.1", f"--port={port}"),
        *(f"--backend-store-uri=sqlite:///{folder}/mlflow.db", f"--artifacts-destination={folder}"),
    ]
    # Its job runner starts nine more processes.
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "server.log").open("a") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, env=environment
        )
    uri = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(uri))
        yield uri
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def answers(uri: str) -> bool:
    try:
        with urllib.request.urlopen(f"{uri}/health", timeout=5):
            return True
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        return int(asking.getsockname()[1])


def test_runs_and_an_experiment_that_a_user_deletes_are_named_and_the_sweep_is_recorded(
    home: Home, tracked, caplog
):
    row, journal = begin(home, "before-1", 1)
    end(row, journal)
    with recorder_of(home, row, journal):
        pass
    experiment = journal.runs(row.id)["experiment"]
    tracked.client.delete_experiment(experiment)
    row, journal = begin(home, "deleted-1", 3)
    with recorder_of(home, row, journal) as recorder:
        recorder.on_events(None, [])
        until(lambda: "t0001" in journal.runs(row.id))
        tracked.client.delete_run(journal.runs(row.id)["t0001"])
        end(row, journal)
    restored, *deleted = caplog.messages
    assert "was in MLflow's trash; it is restored for this sweep" in restored
    assert all("deleted" in said and "does not answer" not in said for said in deleted)
    assert recorder.behind == 0
    assert_complete(tracked, row, 3)


@pytest.mark.full
def test_a_server_that_goes_and_comes_back_gets_everything_and_is_named(
    home: Home, tracked, caplog
):
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    row, journal = begin(home, "outage-1", 3, tracking={"uri": uri})
    with ExitStack() as stack:
        with server(home.path, port):
            recorder = recorder_of(home, row, journal).__enter__()
            until(lambda: journal.cursor(row.id, "mlflow"))
        seq = journal.cursor(row.id, "mlflow")
        end(row, journal)
        log = home.folder(row.id, None) / "logs" / "recorder.log"
        until(lambda: "Connection refused" in log.read_text())
        assert journal.cursor(row.id, "mlflow") == seq
        for _ in range(3):
            recorder.on_events(None, [])
        away = f"{row.id}: MLflow ({uri}) does not answer (logs/recorder.log says why);"
        assert [message[: len(away)] for message in caplog.messages] == [away]
        stack.enter_context(server(home.path, port))
        recorder.__exit__(None, None, None)
        assert caplog.messages[1:] == [f"{row.id}: MLflow ({uri}) answers"]
        assert recorder.behind == 0
        assert_complete(replace(tracked, client=MlflowClient(uri)), row, 3)


def test_a_large_simulation_is_not_recorded_unless_tracking_is_given():
    simulated = {
        "engine": {"type": "simulate", "curve": "some:curve"},
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"lr": {"min": 1e-5, "max": 1e-1, "log": True}},
    }
    at_limit, above_limit = {"max": MOST_SIMULATED}, {"max": MOST_SIMULATED + 1}
    assert is_recorded(specs.load({**simulated, "trials": at_limit}))
    assert not is_recorded(specs.load({**simulated, "trials": above_limit}))
    assert not is_recorded(specs.load({**simulated, "budget": {"wall": "1h"}}))
    tracking = {"tracking": {"experiment": "large"}}
    assert is_recorded(specs.load({**simulated, "trials": above_limit, **tracking}))


LARGE = {"trials": {"max": MOST_SIMULATED + 1, "parallel": 8}}
UNLIMITED = {"trials": {"parallel": 1}, "budget": {"wall": "20s"}}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [(LARGE, "more than 200 simulated trials"), (UNLIMITED, "a simulation without `trials.max`")],
)
def test_one_that_is_not_recorded_says_why_and_starts_nothing(
    simulated, home: Home, caplog, changes, reason
):
    row, journal = simulated(**changes)
    with recorder_of(home, row, journal) as recorder:
        assert recorder.environment("t0001") == {}
    assert recorder.behind == 0
    [message] = [record.message for record in caplog.records]
    assert message.startswith(f"{row.id}: not recorded in MLflow: {reason};")
    assert not home.folder(row.id, None).exists()


def test_a_password_is_not_shown():
    shown = hide_passwords("no answer from https://me:secret@mlflow.example/api")
    assert shown == "no answer from https://***@mlflow.example/api"
