"""If these fail, a worse model becomes the champion, or one is registered twice."""

import json
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import command_line
import mlflow
import pytest
from mlflow import MlflowClient
from outboxes import mlflow_outbox, send_all
from printed import text_of
from rich.console import Group
from simulated_sweeps import at_desk, spec_of
from sweep_stories import begin

from hposvc import api
from hposvc import spec as specs
from hposvc.events import Attached, Checkpointed, Closed, Ended, Finished, Reported
from hposvc.journal.home import Home
from hposvc.journal.journal import SweepRow
from hposvc.spec.sections import Register
from hposvc.state.sweep import SweepState
from hposvc.tracking.answers import Promotion
from hposvc.tracking.mlflow_client import tracker_of
from hposvc.tracking.mlflow_server import QUIET
from hposvc.tracking.promotion import Unfit, candidate, promote
from hposvc.verbs.rm import remove
from hposvc.views.result import summary
from trainables.storage.checkpoint import Saved, store

NOW = 1e9


class Made:
    """A sweep of one trial that ended with this value, recorded in MLflow."""

    def __init__(self, home: Home, name: str, value: float, goal: str = "minimize") -> None:
        metric = {"name": "score", "goal": goal}
        self.spec = spec_of("trainables.zoo.digits:DigitsCNN", project="models", metric=metric)
        self.row = SweepRow(name, name, "models", NOW, specs.dump(self.spec), {})
        self.journal, self.tracker = home.journal(), tracker_of(home, name, self.spec)
        assert self.journal.create(self.row)
        self.folder = home.path / f"{name}-checkpoint"
        written = home.path / f"{name}-written"
        written.mkdir()
        (written / "model.txt").write_text(f"weights of {name}")
        saved = store(written, self.folder, 1)
        events = [
            *(Attached(NOW, "here:1"), *begin(1, NOW, {"lr": 0.1}, 1)),
            Checkpointed(NOW, 1, "t0001", saved),
            *(Reported(NOW, 1, "t0001", 1, {"score": value}), Ended(NOW, 1, "t0001")),
            *(Closed(NOW, "trials"), Finished(NOW, "COMPLETED", "trials")),
        ]
        self.journal.append(name, 0, events)
        self.outbox = mlflow_outbox(home, self.row, self.journal, self.tracker)
        send_all(self.outbox)

    @property
    def state(self) -> SweepState:
        return self.outbox.projection.state

    def promote(self, **register: object) -> Promotion:
        runs = self.journal.runs(self.row.id)
        return promote(self.tracker, Register("digits", **register), self.state, runs)


@pytest.fixture
def client(home: Home) -> MlflowClient:
    return MlflowClient(home.tracking_uri, home.tracking_uri)


def versions(client: MlflowClient) -> dict[str, str]:
    return {
        str(version.version): version.tags["hposvc.sweep"]
        for version in client.search_model_versions("name = 'digits'")
    }


def champion(client: MlflowClient) -> str:
    return str(client.get_model_version_by_alias("digits", "champion").version)


def test_the_first_best_trial_is_the_champion_and_its_files_are_the_checkpoint(
    home, client, monkeypatch
):
    sweep = Made(home, "first", 0.5)
    promotion = sweep.promote()
    assert (promotion.verdict, promotion.version, promotion.before) == ("moved", "1", None)
    version = client.get_model_version_by_alias("digits", "champion")
    assert version.run_id == sweep.journal.run("first", "t0001")
    tags = {name: text for name, text in version.tags.items() if "decision" not in name}
    assert tags == {
        "hposvc.sweep": "first",
        "hposvc.trial": "t0001",
        "hposvc.step": "1",
        "hposvc.metric": "score",
        "hposvc.goal": "minimize",
        "hposvc.value": "0.5",
    }
    model_uri = "models:/digits@champion"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", home.tracking_uri)
    folder = mlflow.artifacts.download_artifacts(model_uri)
    assert (Path(folder) / "model.txt").read_text() == "weights of first"


@pytest.mark.parametrize(
    ("goal", "before", "after", "gate", "verdict"),
    [
        ("minimize", 0.57, 0.56, 0.01, "moved"),  # exactly the gate, but for rounding
        ("minimize", 0.57, 0.565, 0.01, "stays"),
        ("maximize", 0.5, 0.6, 0.0, "moved"),
    ],
)
def test_the_alias_moves_to_what_is_better_by_the_gate(
    home, client, goal, before, after, gate, verdict
):
    Made(home, "first", before, goal).promote()
    promotion = Made(home, "second", after, goal).promote(gate=gate)
    assert (promotion.verdict, promotion.version, promotion.before) == (verdict, "2", "1")
    assert champion(client) == ("2" if verdict == "moved" else "1")
    assert versions(client) == {"1": "first", "2": "second"}


def test_one_that_can_not_be_compared_leaves_the_champion_and_says_why(home, client):
    Made(home, "first", 0.5).promote()
    other = Made(home, "second", 0.9, "maximize").promote()
    assert (other.verdict, champion(client)) == ("stays", "1")
    assert "maximize score" in other.reason
    client.delete_model_version_tag("digits", "1", "hposvc.value")
    bare = Made(home, "third", 0.1).promote()
    assert (bare.verdict, champion(client)) == ("stays", "1")
    assert "no tag hposvc.value" in bare.reason


def test_the_sweeps_run_and_the_version_tell_the_decision(home, client, tracked):
    Made(home, "first", 0.5).promote()
    Made(home, "second", 0.6).promote()
    parent = tracked.runs("second")[""]
    assert parent.data.tags["hposvc.registered"] == "digits version 2"
    assert "stays at version 1" in parent.data.tags["hposvc.decision"]
    decided = client.get_model_version("digits", "2").tags["hposvc.decision.champion"]
    assert decided.startswith("stays: score 0.6 after 0.5 of version 1")


def test_a_checkpoint_that_was_damaged_is_not_registered(home, client):
    sweep = Made(home, "first", 0.5)
    (sweep.folder / "model.txt").write_text("otherwise")
    with pytest.raises(Unfit, match="first: the checkpoint of t0001 at step 1 can't be used"):
        sweep.promote()
    assert client.search_registered_models() == []


def test_a_recorder_decides_once_and_takes_no_alias_back(home, client):
    Made(home, "first", 0.5).promote()
    sweep = Made(home, "second", 0.4)
    # What a spec with a section `register` has.
    object.__setattr__(sweep.outbox.sink.spec, "register", Register("digits"))
    sweep.outbox.sink.close(sweep.state)
    assert champion(client) == "2"
    client.set_registered_model_alias("digits", "champion", "1")  # a user's own decision
    sweep.outbox.sink.close(sweep.state)
    assert champion(client) == "1"
    assert versions(client) == {"1": "first", "2": "second"}


def logged_models(client, sweep):
    experiment = client.get_experiment_by_name("models").experiment_id
    query = f"source_run_id = '{sweep.journal.runs(sweep.row.id)['t0001']}'"
    return list(client.search_logged_models([experiment], query))


def test_the_best_checkpoint_is_a_logged_model_of_its_run_once(home, client, tmp_path):
    sweep = Made(home, "first", 0.5)
    sweep.outbox.sink.close(sweep.state)
    sweep.outbox.sink.close(sweep.state)
    (model,) = logged_models(client, sweep)
    assert (model.name, model.params, model.status) == ("first", {"lr": "0.1"}, "READY")
    assert model.tags["hposvc.value"] == "0.5"
    mlflow.set_tracking_uri(home.tracking_uri)
    folder = mlflow.artifacts.download_artifacts(f"models:/{model.model_id}", dst_path=tmp_path)
    assert (Path(folder) / "model.txt").read_text() == "weights of first"


def test_a_model_whose_files_were_not_all_there_is_completed(home, client, monkeypatch):
    sweep = Made(home, "first", 0.5)

    def die(self, model_id, folder):
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_model_artifacts", die)
        sweep.outbox.sink.close(sweep.state)
    assert [model.status for model in logged_models(client, sweep)] == ["PENDING"]
    sweep.outbox.sink.close(sweep.state)
    assert [model.status for model in logged_models(client, sweep)] == ["READY"]


def test_a_recorder_tells_the_driver_what_it_registered_or_why_not(home):
    sweep = Made(home, "first", 0.5)
    object.__setattr__(sweep.outbox.sink.spec, "register", Register("digits"))
    assert sweep.journal.registered("first") == ""
    sweep.outbox.sink.close(sweep.state)
    outcome = "digits version 1 (first t0001) is champion now: no version had it"
    assert sweep.journal.registered("first") == outcome
    record = api.load(api.Sweeps(home, sweep.journal), "first")
    assert record.status().registered == outcome
    object.__setattr__(record.state.spec, "register", Register("digits"))
    assert outcome in text_of(Group(*summary(record, home)))
    without = text_of(Group(*summary(replace(record, registered=""), home)))
    assert "hposvc promote first --model digits --alias champion" in without


def test_a_recorder_that_can_not_register_goes_on_and_says_why(home, caplog):
    caplog.set_level("INFO", "hposvc")
    sweep = Made(home, "first", 0.5)
    (sweep.folder / "model.txt").unlink()
    object.__setattr__(sweep.outbox.sink.spec, "register", Register("digits"))
    sweep.outbox.sink.close(sweep.state)
    outcome = sweep.journal.registered("first")
    assert outcome.startswith("nothing is registered: first: the checkpoint of t0001")
    assert outcome in caplog.messages
    sweep.tracker.client.search_model_versions = None
    sweep.outbox.sink.close(sweep.state)
    assert sweep.journal.registered("first").startswith("the best trial could not be registered")


def test_a_new_sweep_of_a_removed_one_s_id_has_a_version_of_its_own(home, client):
    old = Made(home, "first", 0.5)
    assert old.promote().version == "1"
    remove(api.Sweeps(home, old.journal), "first")
    for folder in home.path.glob("first-*"):
        shutil.rmtree(folder)
    promotion = Made(home, "first", 0.4).promote()
    assert (promotion.version, promotion.verdict, promotion.before) == ("2", "moved", "1")


def test_the_champion_of_the_replicates_is_what_is_registered():
    desk = at_desk(trials={"max": 2, "parallel": 2}, finalists={"top": 2, "seeds": 2})
    for search in [desk.start(0.1), desk.start(0.2)]:
        saved = Saved(9, f"{search.trial}/{search.id}-9", "", 10)
        desk.happen(Checkpointed(0.0, search.id, search.trial, saved))
        desk.report(search, 9, 0.1 * search.id, save=False)
        desk.end(search)
    assert candidate("s", desk.state).trial == "t0001"
    for loss in (0.7, 0.3, 0.8, 0.4):  # of both finalists in turn
        replicate = desk.start()
        desk.report(replicate, 9, loss, save=False)
        desk.end(replicate)
    desk.happen(desk.controller.finish(0.0))
    best = candidate("s", desk.state)
    assert (best.trial, best.value, best.saved.path) == ("t0002", 0.2, "t0002/2-9")


def test_promote_does_it_by_hand(home, client, capfd, monkeypatch):
    for name in ("HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in QUIET.items():  # set by the command, which never unsets them
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "path", sys.path[:])
    Made(home, "first", 0.5)
    Made(home, "second", 0.495)

    run = partial(command_line.run, capfd, "--home", home.path, "promote")
    code, out, _ = run("first", "--model", "digits")
    assert (code, out) == (0, "digits version 1 (first t0001) is champion now: no version had it\n")
    code, out, _ = run("second", "--model", "digits", "--gate", "0.01", "-o", "json")
    assert (code, json.loads(out)["verdict"], champion(client)) == (0, "stays", "1")
    assert run("second", "--model", "a/b").code == 2
    assert run("second", "--model", "digits", "--gate", "-1").code == 2
    assert run("third", "--model", "digits").code == 4
