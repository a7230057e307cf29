"""The client of MLflow, on a real MLflow database in SQLite."""

import json
import math
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from mlflow.data import get_source

from hposvc.journal.home import Home
from hposvc.tracking.mlflow_client import Tracker
from hposvc.tracking.projection import MetricPoint, RunContent
from hposvc.tracking.sink import Altered
from trainables.dataset import DataSet

ENTRY = RunContent(
    {"lr": "0.001", "batch": "64"},
    {"hposvc.state": "COMPLETED"},
    [
        MetricPoint("loss", 0.5, 1_000, 1),
        MetricPoint("loss", math.nan, 2_000, 2),
        MetricPoint("acc", 0.1, 1_000, 1),
    ],
    "FINISHED",
    3_000,
    inputs=(
        DataSet("sums", "training", 5, "0a1b", "s3://bucket/sums"),
        DataSet("sums", "validation", 2, "2c3d", "/data/sums"),
        DataSet("made-up", "training", 2, "4e5f"),
    ),
)


@pytest.fixture
def tracker(home: Home) -> Tracker:
    tracker = Tracker(home, home.tracking_uri, "valleys", "s-1")
    tracker.open()
    return tracker


def create(tracker: Tracker, trial: str = "t0001") -> str:
    tags = {"hposvc.sweep": "s-1", "hposvc.trial": trial, "hposvc.state": "PENDING"}
    return tracker.create(trial, 500, tags)


def test_what_was_sent_is_held(tracker: Tracker, tracked):
    run = create(tracker)
    tracker.send(run, ENTRY)
    recorded = tracker.runs()["t0001"][0]
    assert recorded.data.params == ENTRY.params
    assert recorded.data.tags["hposvc.state"] == "COMPLETED"
    assert (recorded.info.status, recorded.info.start_time, recorded.info.end_time) == (
        "FINISHED",
        500,
        3_000,
    )
    assert tracked.points(recorded) == [
        ("acc", 1, 1_000, "0.1"),
        ("loss", 1, 1_000, "0.5"),
        ("loss", 2, 2_000, "nan"),
    ]


def test_data_sets_are_inputs_of_the_run_once_and_mlflow_knows_where_they_are(tracker: Tracker):
    run = create(tracker)
    for _ in range(2):
        tracker.send(run, ENTRY)
    data_inputs = tracker.runs()["t0001"][0].inputs.dataset_inputs
    inputs = {
        (
            data_input.dataset.name,
            data_input.dataset.digest,
            data_input.tags[0].value,
            data_input.dataset.source_type,
        )
        for data_input in data_inputs
    }
    assert inputs == {
        ("sums", "0a1b", "training", "s3"),
        ("sums", "2c3d", "validation", "local"),
        ("made-up", "4e5f", "training", "code"),
    }
    assert len(data_inputs) == 3
    places = {
        data_input.dataset.digest: get_source(data_input.dataset).to_dict()
        for data_input in data_inputs
    }
    assert places["0a1b"] == {"uri": "s3://bucket/sums"}
    assert places["2c3d"] == {"uri": "/data/sums"}
    assert {json.loads(data_input.dataset.profile)["num_rows"] for data_input in data_inputs} == {
        2,
        5,
    }


def test_more_than_a_call_of_mlflow_takes_arrives(tracker: Tracker, tracked):
    params = {f"p{number}": "x" * 6000 for number in range(230)}
    points = [MetricPoint("loss", 1 / step, step, step) for step in range(1, 2_501)]
    tracker.send(create(tracker), RunContent(params, {}, points))
    recorded = tracker.runs()["t0001"][0]
    assert recorded.data.params == params
    assert len(tracked.points(recorded)) == 2_500


def test_a_param_that_the_trial_logged_otherwise_does_not_stop_the_rest(tracker: Tracker, tracked):
    run = create(tracker)
    tracked.client.log_param(run, "lr", "1e-3")
    tracker.send(run, ENTRY)
    recorded = tracker.runs()["t0001"][0]
    assert recorded.data.params == {"lr": "1e-3", "batch": "64"}
    assert len(tracked.points(recorded)) == 3
    assert recorded.info.status == "FINISHED"


def test_a_users_run_with_the_sweeps_tag_is_not_ours(tracker: Tracker):
    create(tracker)
    tracker.create("evaluation", 400, {"hposvc.sweep": "s-1"})
    tracker.create("compared", 400, {"hposvc.sweep": "s-1", "hposvc.trial": "t0001"})
    assert {name: len(runs) for name, runs in tracker.runs().items()} == {"t0001": 1}


def test_a_run_that_is_disowned_keeps_what_it_holds_and_is_not_found(tracker: Tracker, tracked):
    run = create(tracker)
    tracker.send(run, ENTRY)
    tracker.disown(tracker.runs()["t0001"][0])
    assert tracker.runs() == {}
    [disowned] = tracked.all()
    assert disowned.data.tags["hposvc.replaced"] == "t0001"
    assert disowned.data.params == ENTRY.params


def test_to_look_makes_no_experiment(tracker: Tracker, home: Home, tracked):
    other = Tracker(home, home.tracking_uri, "hills", "s-1")
    assert not other.find()
    assert tracked.client.get_experiment_by_name("hills") is None
    assert Tracker(home, home.tracking_uri, "valleys", "s-1").find()


def test_an_experiment_in_the_trash_is_restored_with_the_runs_of_the_sweep_alone(
    tracker: Tracker, home: Home, tracked, caplog
):
    experiment = tracker.open()
    own = create(tracker)
    tracker.create("another", 400, {"hposvc.sweep": "s-0", "hposvc.state": "COMPLETED"})
    tracker.create("a user's own", 400, {})
    tracked.client.delete_run(tracker.create("deleted before", 400, {}))
    tracked.client.delete_experiment(experiment)
    assert tracker.open() == experiment
    assert [run.info.run_id for run in tracked.client.search_runs([experiment])] == [own]
    [said] = caplog.messages
    assert said.startswith("experiment valleys was in MLflow's trash; it is restored for this swee")
    assert "its 3 other runs stay there" in said
    tracker.open()
    assert caplog.messages == [said]


@pytest.mark.parametrize("gone", ["deleted", "never there"])
def test_a_run_that_was_deleted_is_named_as_that(tracker: Tracker, tracked, gone):
    run = create(tracker) if gone == "deleted" else "0" * 32
    if gone == "deleted":
        tracked.client.delete_run(run)
    with pytest.raises(Altered, match=f"run {run} of this sweep was deleted there; it is made aga"):
        tracker.send(run, ENTRY)


def test_artifacts_of_the_embedded_mlflow_lie_in_the_home(tracker: Tracker, home: Home):
    run = create(tracker)
    tracker.add_files(run, {"spec.yaml": "name: valley\n"})
    tracker.add_files(run, {"spec.yaml": "is there", "more.txt": "and more"})
    texts = {path.name: path.read_text() for path in home.artifacts.rglob("*.*") if path.is_file()}
    assert texts == {"spec.yaml": "name: valley\n", "more.txt": "and more"}


KILLED = """
import os
import sys
from pathlib import Path
from sqlalchemy import event
from sqlalchemy.engine import Engine
from hposvc.journal.home import Home
from hposvc.tracking.mlflow_client import Tracker

import mlflow.store.tracking.sqlalchemy_store  # each fork would import it anew

left = 0

@event.listens_for(Engine, "after_cursor_execute")
def die(*_):
    global left
    left -= 1
    if left == 0:
        os._exit(9)

home = Home.of(Path(sys.argv[1]), {})
for statements in sys.argv[2:]:
    left = int(statements)
    process = os.fork()
    if not process:
        Tracker(home, home.embedded_uri, "anything", "sweep").open()
        sys.exit()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    print(statements, code, (home.path / "mlflow.db").exists(), flush=True)
"""


@pytest.mark.full
def test_a_death_while_mlflow_makes_its_tables_leaves_no_half_database(tmp_path, tracked):
    home = Home.of(tmp_path / "home", {})
    moments = ("350", "777", "1001")  # MLflow 3.17 alone cannot open what each of these leaves
    command = [sys.executable, "-c", KILLED, str(home.path), *moments]
    ended = subprocess.run(command, check=True, timeout=240, stdout=subprocess.PIPE, text=True)
    assert ended.stdout.splitlines() == [f"{statements} 9 False" for statements in moments]
    tracker = Tracker(home, home.embedded_uri, "anything", "s-1")
    tracker.open()
    create(tracker)
    assert [*tracker.runs()] == ["t0001"]
    assert not [*home.path.glob("mlflow.db.new*")]


def test_artifacts_of_another_sqlite_lie_in_the_home_too(home: Home, empty_mlflow, tmp_path):
    elsewhere = tmp_path / "elsewhere.db"
    elsewhere.write_bytes(empty_mlflow.read_bytes())
    tracker = Tracker(home, f"sqlite:///{elsewhere}", "valleys", "s-1")
    tracker.open()
    tracker.add_files(create(tracker), {"spec.yaml": "name: valley\n"})
    assert [path.name for path in home.artifacts.rglob("*.yaml")] == ["spec.yaml"]


def journal_mode(database: Path) -> str:
    with closing(sqlite3.connect(database)) as connection:
        return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


def test_the_embedded_database_alone_gets_a_write_ahead_log(home: Home, empty_mlflow, tmp_path):
    theirs = tmp_path / "theirs.db"
    theirs.write_bytes(empty_mlflow.read_bytes())
    databases = [home.path / "mlflow.db", theirs]
    for database in databases:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
    for database in databases:
        Tracker(home, f"sqlite:///{database}", "valleys", "s-1").open()
    assert [journal_mode(database) for database in databases] == ["wal", "delete"]


def test_an_embedded_database_in_use_gets_its_write_ahead_log_later(home: Home):
    database = home.path / "mlflow.db"
    with closing(sqlite3.connect(database)) as reader:
        reader.execute("PRAGMA journal_mode=DELETE")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM experiments").fetchone()
        Tracker(home, home.tracking_uri, "valleys", "s-1").find()
        assert journal_mode(database) == "delete"
    Tracker(home, home.tracking_uri, "valleys", "s-1").find()
    assert journal_mode(database) == "wal"
