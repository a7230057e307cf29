"""Each trial runs the code of its variant, as it was when the sweep began; engines: local and ray.

What a trial reports says which code ran: main 10, branch 20, a patch 30, and 99 what came later.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import code_repository
import pytest
from command_line import run

from hposvc import api
from hposvc.events import Ordered

ALL = {"main": 10.5, "branch": 20.5, "by-patch": 30.5}  # losses where x is one half


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path / 'home'}")
    return code_repository.make(tmp_path / "repository")


def drive(spec, sweep="s"):
    """Run a sweep to its end."""
    sweeps = api.Sweeps.open()
    api.drive(sweeps, api.create(sweeps, api.validate(spec, {}), sweep))


def short(trial):
    return trial.params["code"].partition("@")[0]


def reported(sweep):
    """Return the losses of trials whose x is one half, by the short name of their variant."""
    trials = api.load(api.Sweeps.open(), sweep).state.trials.values()
    return {short(trial): trial.value for trial in trials if trial.params["x"] == 0.5}


def test_local_trials_run_the_code_of_their_variant_also_after_the_repository_has_moved_on(
    repository, capfd
):
    drive(code_repository.spec(repository, engine="local"))
    assert reported("s") == ALL
    code_repository.move_on(repository)
    assert run(capfd, "repro", "s", "t0002", "-o", "json").data["verdict"] == "equal"
    assert run(capfd, "extend", "s", "--trials", 6).code == 0
    trials = api.load(api.Sweeps.open(), "s").state.trials.values()
    assert len(trials) == 9
    assert all(
        trial.value == pytest.approx(ALL[short(trial)] + trial.params["x"] - 0.5)
        for trial in trials
    )
    shown = run(capfd, "trials", "s").out
    assert all(f"code={trial.params['code']}" in shown for trial in trials)
    assert run(capfd, "fork", "s", "--id", "f", "--set", "trials.max=1").code == 0
    folder = api.Sweeps.open().home.folder("s", None)
    assert len([*(folder / "variants").iterdir()]) == 3
    assert run(capfd, "rm", "s", "--yes").code == 0
    assert not folder.exists()
    assert run(capfd, "extend", "f", "--trials", 4).code == 0, "a fork has code of its own"
    values = [trial.value for trial in api.load(api.Sweeps.open(), "f").state.trials.values()]
    assert {int(value) for value in values} <= {10, 20, 30}


def test_programs_run_in_the_tree_of_their_variant(repository):
    command = ["python", "program.py", "${args}"]
    spec = code_repository.spec(repository, engine="local", command=command)
    del spec["trainable"], spec["fidelity"]
    drive(spec)
    assert reported("s") == ALL


@pytest.mark.long
def test_a_sweep_that_was_killed_goes_on_with_the_frozen_code(repository, tmp_path):
    (repository / "train.py").write_text(
        code_repository.TRAIN + "        import time; time.sleep(0.3)\n"
    )
    code_repository.commit(repository)
    code_repository.git(repository, "checkout", "-q", "branch")
    code_repository.git(repository, "checkout", "-q", "main", "--", "train.py")
    code_repository.commit(repository)
    code_repository.git(repository, "checkout", "-q", "main")
    file = tmp_path / "sweep.yaml"
    file.write_text(json.dumps(code_repository.spec(repository, engine="local")))
    process = code_repository.run_until_begun(file, tmp_path / "home")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    code_repository.move_on(repository)
    subprocess.run(
        [sys.executable, "-m", "hposvc", "resume", "s"], check=True, stderr=subprocess.DEVNULL
    )
    assert reported("s") == ALL


@pytest.mark.parametrize("parallel", [pytest.param(1, marks=pytest.mark.full), 2])
def test_ray_trials_run_the_code_of_their_variant(
    repository, home_with_ray: Path, monkeypatch, parallel
):
    monkeypatch.setenv("HPOSVC_HOME", f"{home_with_ray}")
    initial = [{"code": name, "x": 0.5} for name in (*ALL, "main", "by-patch")]
    sweep = f"ray-{parallel}"
    spec = code_repository.spec(
        repository,
        engine="ray",
        initial=initial,
        trials={"max": 5, "parallel": parallel},
        resources={"cpus_per_worker": 0.5},
    )
    drive(spec, sweep)
    trials = api.load(api.Sweeps.open(), sweep).state.trials.values()
    values = [(short(trial), trial.value) for trial in trials]
    assert sorted(values) == sorted((point["code"], ALL[point["code"]]) for point in initial)


def test_the_same_command_goes_on_although_branches_have_moved_on(repository, capfd):
    file = repository.parent / "sweep.yaml"
    spec = code_repository.spec(repository, engine="local", trials={"max": 2})
    spec["parameters"]["code"] = {"variants": ["main", "branch"]}
    spec["initial"] = [{"code": name, "x": 0.5} for name in ("main", "branch")]
    file.write_text(json.dumps(spec))
    command = ("run", file, "--id", "s", "--resume")
    assert run(capfd, *command).code == 0
    code_repository.move_on(repository)
    assert run(capfd, *command).code == 0
    spec["parameters"]["code"] = {"variants": ["branch", "main"]}
    file.write_text(json.dumps(spec))
    refused = run(capfd, *command)
    assert refused.code == 2
    assert "s has another spec: parameters.code" in refused.err


def test_versions_are_compared_by_pairs_of_the_same_configuration(repository, capfd):
    seeds = {"values": [0, 1, 2, 3, 4, 5]}
    parameters = {"code": {"variants": ["main", "branch"]}, "x": 0.5, "seed": seeds}
    spec = code_repository.spec(repository, engine="local", parameters=parameters, search="grid")
    drive({**spec, "initial": [], "trials": {"max": 12}})
    kept = run(capfd, "verdict", "s/branch", "s/main", "-o", "json")
    assert (kept.code, kept.data["verdict"], kept.data["pairs"]) == (0, "KEEP", 6)
    assert kept.data["better_by"] == 10
    discarded = run(capfd, "verdict", "s/main", "s/branch")
    assert (discarded.code, discarded.out.partition(":")[0]) == (20, "DISCARD")
    assert "did you mean 'branch'?" in run(capfd, "verdict", "s/main", "s/brnach").err


@pytest.mark.long
def test_versions_with_too_few_runs_are_retested_by_the_printed_commands(repository, capfd):
    noisy = code_repository.TRAIN.replace('["x"]', '["x"] + worker.seed % 97 * 1e-4')
    for branch in ("branch", "main"):
        code_repository.git(repository, "checkout", "-q", branch)
        (repository / "train.py").write_text(noisy)
        code_repository.commit(repository)
    parameters = {"code": {"variants": ["main", "branch"]}, "x": {"min": 0.0, "max": 1.0}}
    initial = [{"code": "branch", "x": 0.25}]
    spec = code_repository.spec(repository, engine="local", parameters=parameters, initial=initial)
    drive({**spec, "trials": {"max": 1, "proposed": 1.0}})
    commands = []
    while (answer := run(capfd, "verdict", "s/branch", "s/main", "-o", "json").data)["more"]:
        assert len(commands) < 6, commands
        *before, _ = answer["retest"].split("; ")
        commands += [shlex.split(command)[1:] for command in before]
        for command in commands[-len(before) :]:
            assert run(capfd, *command).code == 0
    assert [command[0] for command in commands] == ["propose", "extend", "extend"]
    assert answer["verdict"] == "KEEP"
    state = api.load(api.Sweeps.open(), "s").state
    assert [trial.params["x"] for trial in state.trials.values()] == [0.25, 0.25]
    seeds = {}
    for _, event in api.Sweeps.open().read("s", 0):
        if isinstance(event, Ordered) and event.order.replicate:
            seeds.setdefault(event.order.replicate, []).append(event.order.seed_of)
    assert all(one == other for one, other in seeds.values()), "pairs share their random numbers"


@pytest.mark.long
def test_replicates_of_versions_that_only_repeat_a_run_are_no_evidence(repository, capfd):
    """Their seed is a parameter, so more pairs take other values of it."""
    parameters = {"code": {"variants": ["main", "branch"]}, "seed": {"values": [0, 1]}, "x": 0.5}
    spec = code_repository.spec(repository, engine="local", parameters=parameters)
    spec["initial"] = [{"code": name, "seed": 0} for name in ("main", "branch")]
    drive({**spec, "trials": {"max": 2, "proposed": 1.0}})
    assert run(capfd, "extend", "s", "--set", "seeds.t0001=2", "--set", "seeds.t0002=2").code == 0
    answer = run(capfd, "verdict", "s/main", "s/branch", "-o", "json").data
    assert (answer["pairs"], answer["looks"]) == (1, 1)
    propose = shlex.split(answer["retest"].partition("; ")[0])
    assert [*propose[:3], propose[-1]] == ["hposvc", "propose", "s", "--run"]
    assert run(capfd, *propose[1:], "-o", "json").data["params"]["seed"] == 1
