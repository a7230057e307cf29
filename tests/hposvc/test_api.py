"""The verbs, without the command line."""

import json
import subprocess
import sys

import pytest
from simulated_sweeps import make_spec

from hposvc import api, steering
from hposvc import spec as specs
from hposvc.events import Attached, Finished, Requested
from hposvc.home import NotFound
from hposvc.lease import Busy, Lease
from hposvc.reading.problems import SpecError
from trainables.slots.assignment import log_file

MANY = {"max": 210, "parallel": 8}  # beyond what MLflow is told of simulations unasked

SHARED = {"params", "value", "metrics", "step", "mlflow_run_id"}
OF_TRIAL = {"trial", "state", "reason", "attempts", "shrink", "gpu_hours", "parent", "kept"}
FIELDS = {
    "ls": {"sweep", "name", "project", "state", "created", "trials", "best_value", "front"},
    "status": {"sweep", "state", "trials", "best", "elapsed_s", "gpu_hours", "driver"},
    "best": SHARED | {"sweep", "trial", "checkpoint"},
    "trials": SHARED | OF_TRIAL,
}


@pytest.fixture
def sweeps(tmp_path):
    return api.Sweeps.open(tmp_path / "home")


def make(**sections):
    return make_spec(**{"trials": MANY, "scheduler": {"type": "asha"}, **sections})


def events(sweeps, sweep):
    return [event for _, event in sweeps.journal.read(sweep)]


def test_a_sweep_is_recorded_once_under_its_name(sweeps):
    row = api.create(sweeps, make(name="digits", project="demo"))
    assert row.id.startswith("digits-")
    assert (row.name, row.project) == ("digits", "demo")
    assert specs.load(row.spec) == make(name="digits", project="demo")
    assert api.create(sweeps, make(), "mine").id == "mine"
    with pytest.raises(SpecError, match="there is a sweep mine already; `hposvc resume mine`"):
        api.create(sweeps, make(), "mine")


@pytest.mark.parametrize("name", ["../up", "a/b", "", "-x", "x" * 300])
def test_an_id_that_can_be_no_folder_is_refused(sweeps, name):
    with pytest.raises(SpecError):
        api.create(sweeps, make(), name)


def test_a_sweep_runs_and_is_what_its_journal_says(sweeps):
    row = api.create(sweeps, make())
    status = api.drive(sweeps, row).status()
    assert status == api.status(sweeps, row.id)
    assert (status["state"], status["driver"]) == ("COMPLETED", "none")
    assert status["trials"]["total"] == 210
    assert status["trials"]["completed"] + status["trials"]["stopped"] == 210
    assert status["best"] == api.best(sweeps, row.id)
    trials = api.trials(sweeps, row.id)
    assert len(trials) == 210
    assert status["best"]["value"] == min(trial["value"] for trial in trials)
    json.dumps([status, trials], allow_nan=False)


def test_the_fields_are_those_of_the_contract(sweeps):
    row = api.create(sweeps, make())
    api.drive(sweeps, row)
    assert set(api.status(sweeps, row.id)) >= FIELDS["status"]
    assert set(api.best(sweeps, row.id)) == FIELDS["best"]
    assert set(api.trials(sweeps, row.id)[0]) == FIELDS["trials"]
    assert set(api.ls(sweeps)[0]) == FIELDS["ls"]


def test_what_has_not_begun_is_queued(sweeps):
    row = api.create(sweeps, make())
    status = api.status(sweeps, row.id)
    assert (status["state"], status["trials"]["total"], status["driver"]) == ("QUEUED", 0, "none")
    assert api.best(sweeps, row.id) is None
    assert api.trials(sweeps, row.id) == []


def test_sweeps_are_listed_newest_first_by_project_tag_and_age(sweeps):
    one = api.create(sweeps, make(project="demo", tags={"who": "me", "n": 3}))
    two = api.create(sweeps, make(project="other", tags={"who": "you"}))
    assert [row["sweep"] for row in api.ls(sweeps)] == [two.id, one.id]
    assert [row["sweep"] for row in api.ls(sweeps, project="demo")] == [one.id]
    assert [row["sweep"] for row in api.ls(sweeps, tag="who")] == [two.id, one.id]
    assert [row["sweep"] for row in api.ls(sweeps, tag="who=you")] == [two.id]
    assert [row["sweep"] for row in api.ls(sweeps, tag="n=3")] == [one.id]
    assert [row["sweep"] for row in api.ls(sweeps, since=two.created)] == [two.id]


def test_an_ended_sweep_is_listed_without_its_events_until_something_happens(sweeps, monkeypatch):
    row = api.create(sweeps, make())
    assert api.ls(sweeps)[0]["state"] == "QUEUED"
    api.drive(sweeps, row)
    first = api.ls(sweeps)
    with monkeypatch.context() as patch:
        patch.delattr(api, "_fold")
        assert api.ls(sweeps) == first
    assert (first[0]["state"], first[0]["trials"]) == ("COMPLETED", 210)
    more = Requested(0.0, "extend", None, {"trials.max": 220})
    sweeps.journal.append(row.id, sweeps.journal.last(row.id), [more])
    assert api.ls(sweeps)[0]["state"] == "QUEUED"


def test_what_an_other_version_listed_is_worked_out_anew(sweeps, monkeypatch):
    row = api.create(sweeps, make())
    api.drive(sweeps, row)
    [listed] = api.ls(sweeps)
    kept = sweeps.journal.listed(row.id)
    assert kept["row"] == listed
    older = {**kept["of"], "version": 0}
    sweeps.journal.record_listed(row.id, {"of": older, "row": {"sweep": "nonsense"}})
    assert api.ls(sweeps) == [listed]


def test_an_ended_sweep_is_resumed_without_a_word(sweeps):
    row = api.create(sweeps, make())
    api.drive(sweeps, row)
    before = events(sweeps, row.id)
    assert api.resume(sweeps, row.id).status()["state"] == "COMPLETED"
    assert events(sweeps, row.id) == before


def test_a_stop_without_a_driver_ends_the_sweep_here(sweeps):
    row = api.create(sweeps, make())
    steered = steering.steer(sweeps, row.id, "stop")
    assert (steered.state, steered.driver) == ("STOPPED", "none")
    assert isinstance(events(sweeps, row.id)[-1], Finished)
    assert sweeps.journal.requests(row.id) == []
    assert steering.steer(sweeps, row.id, "kill").state == "STOPPED"  # over: nothing to ask for
    assert sweeps.journal.requests(row.id) == []


def test_a_stop_with_a_living_driver_is_left_to_it(sweeps):
    row = api.create(sweeps, make())
    Lease(sweeps.journal.store, row.id).acquire()
    assert steering.steer(sweeps, row.id, "stop").driver == "alive"
    [(_, request)] = sweeps.journal.requests(row.id)
    assert (request.verb, request.trial) == ("stop", None)
    with pytest.raises(Busy):
        api.drive(sweeps, row)


def test_a_trial_s_end_without_a_driver_waits_for_the_next(sweeps, tmp_path):
    row = api.create(sweeps, make())
    with pytest.raises(NotFound, match=rf"{row.id} has no trial t0001"):
        steering.steer(sweeps, row.id, "kill", "t0001")
    begin_and_die(tmp_path / "home", row.id)
    assert api.status(sweeps, row.id)["driver"] == "dead"
    trial = next(one["trial"] for one in api.trials(sweeps, row.id) if one["state"] == "RUNNING")
    steering.steer(sweeps, row.id, "kill", trial)
    assert len(sweeps.journal.requests(row.id)) == 1
    api.resume(sweeps, row.id)
    ended = next(one for one in api.trials(sweeps, row.id) if one["trial"] == trial)
    assert (ended["state"], ended["reason"]) == ("STOPPED", "user")
    asked = [event for event in events(sweeps, row.id) if isinstance(event, Requested)]
    assert [event.trial for event in asked] == [trial]


DIE = """
import os, sys
from pathlib import Path
from hposvc import api
from hposvc.home import find

class Die:
    def turn(self, state, events):
        if len(state.trials) > 50:
            os._exit(9)

sweeps = api.Sweeps.open(Path(sys.argv[1]))
api.drive(sweeps, find(sweeps.journal, sys.argv[2]), [Die()])
"""


def begin_and_die(home, sweep):
    command = [sys.executable, "-c", DIE, str(home), sweep]
    path = ":".join(filter(None, sys.path))
    done = subprocess.run(command, env={"PYTHONPATH": path}, check=False, timeout=60)
    assert done.returncode == 9


def test_a_driver_that_died_is_followed_by_one_that_finishes(sweeps, tmp_path):
    row = api.create(sweeps, make())
    begin_and_die(tmp_path / "home", row.id)
    before = api.status(sweeps, row.id)
    assert (before["state"], before["driver"]) == ("RUNNING", "dead")
    status = api.resume(sweeps, row.id).status()
    assert (status["state"], status["trials"]["total"]) == ("COMPLETED", 210)
    assert sum(isinstance(event, Attached) for event in events(sweeps, row.id)) == 2


TRAIN = """
def train(params, worker):
    for step in worker.steps():
        worker.report(step, {"loss": params["lr"]})
"""


def file_spec(file):
    return make_spec(engine="local", trainable=f"{file}:train")


def test_changed_code_is_not_gone_on_with_unasked(sweeps, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(TRAIN)
    row = api.create(sweeps, file_spec(file))
    file.write_text(TRAIN + "\n")
    with pytest.raises(SpecError, match=rf"mine.py:train changed since {row.id}.*--accept-code"):
        api.resume(sweeps, row.id)


def test_code_that_is_gone_is_told_as_a_matter_of_the_spec(sweeps, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(TRAIN)
    row = api.create(sweeps, file_spec(file))
    file.unlink()
    with pytest.raises(SpecError, match=r"trainable.*there is no file .*mine.py"):
        api.resume(sweeps, row.id)


def test_logs_are_those_of_a_trial_in_the_order_of_its_orders(sweeps):
    row = api.create(sweeps, make())
    api.drive(sweeps, row)
    folder = sweeps.home.folder(row.id, None)
    for order, rank in [(10, 0), (2, 1), (2, 0)]:
        file = log_file(folder, "t0003", order, rank)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("hello")
    logs = api.logs(sweeps, row.id, "t0003")
    assert [(log.order, log.rank) for log in logs] == [(2, 0), (2, 1), (10, 0)]
    assert [(log.order, log.rank) for log in api.logs(sweeps, row.id, "t0003", 1)] == [(2, 1)]
    assert api.logs(sweeps, row.id, "t0004") == []
    with pytest.raises(NotFound):
        api.logs(sweeps, row.id, "t9999")
