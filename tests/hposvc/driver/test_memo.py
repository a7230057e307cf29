"""Recorded results in place of trainings. If these fail, a sweep takes what is not its own."""

import pytest

from hposvc.errors import SpecError
from hposvc.python.sweep import Sweep

CODE = """
from pathlib import Path
from random import Random

from trainables.worker import DataSet


def train(params, worker):
    with (Path(__file__).parent / "trained.txt").open("a") as file:
        file.write(f"{params['x']} {worker.seed}\\n")
    DATA
    for step in worker.steps():
        luck = Random(f"{params['x']} {worker.seed} {step}").random()
        worker.report(step, {"loss": (params["x"] - 3) ** 2 + luck, "other": step})
"""
SPEC = {
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"x": {"values": [1, 2, 3, 4, 5]}},
    "fidelity": {"max": 9},
    "search": "grid",
    "engine": "local",
    "tracking": {"send_to": []},
    "trials": {"max": 5},
    "memo": True,
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a folder with code, beside a home."""
    folder = tmp_path / "code"
    folder.mkdir()
    write_code(folder)
    monkeypatch.chdir(folder)
    return folder


def write_code(folder, data="pass"):
    (folder / "train.py").write_text(CODE.replace("DATA", data))


def run(folder, name, **sections):
    """Run a sweep, and return its trials and how many trainings it did."""
    before = trained(folder)
    spec = {**SPEC, "trainable": f"{folder}/train.py:train", "name": name, **sections}
    result = Sweep(**spec).run(folder.parent / "home", progress=False)
    return result.record.trials(), trained(folder) - before


def trained(folder):
    log = folder / "trained.txt"
    return len(log.read_text().splitlines()) if log.exists() else 0


def sources(trials):
    """Return the sweeps whose results trials take."""
    return {trial.memo.partition("-")[0] for trial in trials}


def test_an_equal_sweep_trains_nothing_and_has_the_same_results(project):
    theirs, first = run(project, "first")
    ours, again = run(project, "again")
    assert (first, again) == (5, 0)
    assert [one.value for one in ours] == [one.value for one in theirs]
    assert [one.metrics for one in ours] == [one.metrics for one in theirs]
    assert [one.memo.partition("/")[2] for one in ours] == [one.trial for one in theirs]
    assert (sources(theirs), sources(ours)) == ({""}, {"first"})
    assert all(one.duration_s == 0 and one.state == "COMPLETED" for one in ours)
    third, count = run(project, "third")  # what was recalled is told by its own sweep alone
    assert (count, sources(third)) == (0, {"first"})


@pytest.mark.parametrize(
    "sections",
    [
        {"memo": False},
        {"seed": 7},
        {"fidelity": {"max": 8}},
        {"training": {"precision": "bf16-mixed"}},
        {"environment": {"env": {"WIDTH": "4"}}},
        {"project": "other"},
        {"parameters": {"x": {"values": [1.5, 2.5, 3.5, 4.5, 5.5]}}},
    ],
    ids=lambda sections: next(iter(sections)),
)
def test_what_differs_is_trained(sections, project):
    run(project, "first")
    trials, count = run(project, "again", **sections)
    assert (count, sources(trials)) == (5, {""})


def test_other_code_is_trained(project):
    run(project, "first")
    with (project / "train.py").open("a") as file:
        file.write("# changed\n")
    assert run(project, "again")[1] == 5


@pytest.mark.parametrize("scheduler", ["asha", "hyperband", {"type": "asha", "mode": "promote"}])
def test_rungs_judge_recorded_results_like_trained_ones(scheduler, project):
    run(project, "first")
    fresh, _ = run(project, "fresh", scheduler=scheduler, memo=False)
    ours, count = run(project, "again", scheduler=scheduler)
    assert count == 0
    assert [(one.step, one.state, one.value) for one in ours] == [
        (one.step, one.state, one.value) for one in fresh
    ]


def test_a_stopped_training_is_no_result(project):
    run(project, "first", scheduler={"type": "asha", "mode": "stop", "eta": 4})
    ours, count = run(project, "again")
    whole = [one for one in ours if one.memo]
    assert 0 < len(whole) < 5
    assert count == 5 - len(whole)


def test_with_common_seeds_any_trial_of_any_sweep_may_be_taken(project):
    seeds = {"min": 2, "max": 3}
    run(project, "first", trials={"max": 5, "seeds": seeds})
    reversed_x = {"x": {"values": [5, 4, 3, 2, 1]}}
    trials = {"max": 5, "seeds": seeds}
    ours, count = run(project, "again", parameters=reversed_x, trials=trials)
    assert (count, sources(ours)) == (0, {"first"})


def test_finalists_are_trained(project):
    finalists = {"top": 1, "seeds": 2}
    run(project, "first", finalists=finalists)
    assert run(project, "again", finalists=finalists)[1] == 2


def test_results_of_other_data_are_not_taken(project):
    write_code(project, 'worker.uses(DataSet("d", "training", 1, open("digest").read()))')
    (project / "digest").write_text("one")
    run(project, "first")
    ours, count = run(project, "again")  # its first trial tells which data it has
    assert (count, sources(ours)) == (1, {"", "first"})
    (project / "digest").write_text("two")
    ours, count = run(project, "other")
    assert (count, sources(ours)) == (5, {""})


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"engine": {"type": "simulate", "curve": "simulated_sweeps:smooth"}}, "no fingerprint"),
        ({"register": {"model": "m"}, "tracking": None}, "and register asks for one; remove it"),
        (
            {"scheduler": {"type": "pbt", "interval": 3, "mutate": {"x": [1, 2]}}},
            "scheduler pbt changes values within",
        ),
    ],
)
def test_what_can_not_be_recalled_is_refused(sections, message, project):
    with pytest.raises(SpecError, match=message) as refused:
        run(project, "first", **{"search": "random", **sections})
    assert "memo: " in str(refused.value)
