"""`hposvc propose`: it only asks unless --run is given, and says when the trial begins."""

import json

import pytest
from click.testing import CliRunner

from hposvc import api
from hposvc.cli.main import commands
from hposvc.views.proposal import describe_turn

SPEC = {
    "name": "valley",
    "engine": {"type": "simulate", "curve": "curves:valley"},
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 3},
    "parameters": {"x": {"min": 0.0, "max": 6.0}, "kind": {"values": ["a", "b"]}},
    "trials": {"max": 6, "parallel": 2},
    "tracking": {},
}


@pytest.fixture
def hposvc(tmp_path, monkeypatch):
    """Return a function that calls a verb, in a home with an ended sweep; it returns the output."""
    monkeypatch.setattr("hposvc.tracking.mlflow_server.MOST_SIMULATED", 0)
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path))
    for name in ("HPOSVC_DB", "HPOSVC_DB_FILE", "HPOSVC_SERVER", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    sweeps = api.Sweeps.open(tmp_path)
    api.drive(sweeps, api.create(sweeps, api.validate(SPEC, {}), "s"))

    def call(*arguments):
        done = CliRunner().invoke(commands, arguments)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.stdout

    call.sweeps = sweeps
    return call


def test_the_answer_names_prediction_probability_nearest_trial_and_queue(hposvc):
    said = hposvc("propose", "s", "--set", "x=3.1")
    assert "chosen by the model: kind" in said
    assert "loss at step 3, without noise: " in said
    assert "better than the best so far (t000" in said
    assert "nearest trial: t000" in said
    assert "not queued: --run has the sweep train it" in said
    assert hposvc.sweeps.journal.requests("s") == []


def test_with_run_it_is_queued_and_says_what_it_waits_for(hposvc):
    said = hposvc("propose", "s", "--set", "x=3.1", "--set", "kind=a", "--run")
    assert "queued: it begins after `hposvc extend s --trials 1`" in said
    ((_, asked),) = hposvc.sweeps.journal.requests("s")
    assert (asked.verb, asked.changes) == ("propose", {"x": 3.1, "kind": "a"})
    assert json.loads(hposvc("status", "s", "-o", "json"))["proposals"]["queued"] == 1
    assert "1 proposed by hposvc propose wait, 0 were begun" in hposvc("status", "s")
    answer = json.loads(hposvc("propose", "s", "--set", "x=4", "--set", "kind=a", "-o", "json"))
    assert answer["params"] == {"x": 4.0, "kind": "a"}
    assert (answer["turn"], answer["begun"], answer["filled"]) == (7, 6, [])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "queued: it begins in the next free slot"),
        ({"turn": 9}, "queued: it begins once 9 trials have begun, now 5"),
        ({"turn": 20}, "queued: it begins after `hposvc extend s --trials 1`, as no trial is left"),
        ({"driver": "dead"}, "slot, when you resume the sweep: hposvc resume s"),
        ({"state": "STOPPED"}, "queued: it begins after `hposvc extend s --trials 1`"),
        ({"refused": "it was tried as t0001"}, "not queued: it was tried as t0001"),
        ({"queued": False}, "not queued: --run"),
    ],
)
def test_the_turn_in_words(changes, words):
    answer = {"sweep": "s", "turn": 5, "begun": 5, "room": 20, "state": "RUNNING"}
    said = describe_turn({**answer, "driver": "alive", "refused": "", "queued": True, **changes})
    assert words in said
