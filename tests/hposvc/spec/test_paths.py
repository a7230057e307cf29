"""Relative paths of a spec begin in the folder of its file, from wherever it is used."""

import io
import json
import os
import sys
from functools import partial
from pathlib import Path

import command_line
import pytest

from hposvc.errors import SpecError
from hposvc.spec import check, dump, load, restore
from hposvc.spec import paths as places

TRAIN = """
from pathlib import Path

import hposvc
import beside_it


def train(config):
    hposvc.report({"loss": float(Path("offset.txt").read_text()) + config["x"] * beside_it.ONE})


def space(trial):
    trial.suggest_float("x", 0.0, 1.0)


def curve(params, step):
    return {"loss": params["x"]}, 1.0
"""
SCRIPT = """
import sys
from functools import partial
from pathlib import Path

print("loss=" + Path("offset.txt").read_text(), flush=True)
"""
TRAINABLE = "trainable: train.py:train\n"
COMMAND = "command: [python, script.py, '${args}']\ncollect: {stdout: 'loss=(?P<loss>.+)'}\n"
SPEC = """
name: placed
metric: {name: loss, goal: minimize}
parameters: {x: {values: [0.0, 1.0]}}
fidelity: {max: 1}
search: grid
engine: local
trials: {max: 2, parallel: 1}
"""
PLUGGED = """
from dataclasses import dataclass

from hposvc.schedulers.fifo import Fifo
from searchers.random_search import Random


@dataclass(frozen=True)
class Search(Random):
    pass


@dataclass(frozen=True)
class Schedule(Fifo):
    pass
"""
UNTRACKED = "tracking: {send_to: []}\n"  # MLflow takes seconds


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a folder with a spec and its files, with another working directory."""
    folder = tmp_path / "project"
    (folder / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (folder / "train.py").write_text(TRAIN)
    (folder / "beside_it.py").write_text("ONE = 1\n")
    (folder / "plugged.py").write_text(PLUGGED)
    (folder / "script.py").write_text(SCRIPT)
    (folder / "offset.txt").write_text("2.0")
    (folder / "token").write_text("hush")
    (folder / "sweep.yaml").write_text(TRAINABLE + SPEC)
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path / "home"))
    for name in ("HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def hposvc(project, capfd):
    return partial(command_line.run, capfd)


def test_every_path_of_a_spec_is_absolute_once_it_is_read(project):
    spec = load(
        project / "deep" / ".." / "sweep.yaml",
        {
            "storage": "out",
            "tracking.uri": "sqlite:///runs.db",
            "environment.secrets": [{"DB": "file:token"}, "HF_TOKEN"],
            "environment.working_dir": "deep",
            "fidelity.max": 3,
            "search": "plugged.py:Search",
            "scheduler": "plugged.py:Schedule",
            "stop": ["plugged.py:rule", "my.rules:rule"],
            "tracking.send_to": ["mlflow", "plugged.py:Sink"],
        },
    )
    assert spec.stop.rules == (f"{project}/plugged.py:rule", "my.rules:rule")
    assert spec.tracking.send_to == ("mlflow", f"{project}/plugged.py:Sink")
    assert spec.search.name == f"{project}/plugged.py:Search"
    assert spec.scheduler.name == f"{project}/plugged.py:Schedule"
    assert spec.folder == f"{project}"
    assert spec.trainable == f"{project}/train.py:train"
    assert spec.storage == f"{project}/out"
    assert spec.tracking.uri == f"sqlite:///{project}/runs.db"
    assert spec.environment.secrets == {"DB": f"file:{project}/token", "HF_TOKEN": "HF_TOKEN"}
    assert spec.works_in == f"{project}/deep"
    assert load(dump(spec)) == restore(dump(spec)) == spec


def test_a_space_and_a_curve_are_found_beside_the_spec(project):
    (project / "simulated.yaml").write_text(
        "metric: {name: loss, goal: minimize}\nparameters: {space: train.py:space}\n"
        "engine: {type: simulate, curve: train.py:curve}\ntrials: {max: 2}\n"
    )
    spec = check(project / "simulated.yaml")
    assert [*spec.parameters] == ["x"]
    assert spec.engine.curve == f"{project}/train.py:curve"
    (project / "simulated.yaml").write_text(
        "metric: {name: loss, goal: minimize}\nparameters: {x: {min: 0.0, max: 1.0}}\n"
        "engine: {type: simulate, curve: beside_it:ONE}\ntrials: {max: 2}\n"
    )
    with pytest.raises(SpecError, match="beside_it:ONE is no function"):  # so it was imported
        check(project / "simulated.yaml")


def test_folder_names_another_place_for_all_of_them(project):
    (project / "deep" / "sweep.yaml").write_text("folder: ..\n" + TRAINABLE + SPEC)
    spec = check(project / "deep" / "sweep.yaml")
    assert (spec.folder, spec.trainable) == (f"{project}", f"{project}/train.py:train")


def test_files_of_a_command_are_found_though_it_works_elsewhere(project):
    (project / "sweep.yaml").write_text(COMMAND + SPEC)
    assert check(project / "sweep.yaml").command[:2] == ("python", "script.py")
    moved = check(project / "sweep.yaml", {"environment.working_dir": "deep"})
    assert moved.command[:2] == ("python", f"{project}/script.py")
    with pytest.raises(SpecError, match=rf"command\[1\]: there is no file {project}/deep/no\.py"):
        check(
            project / "sweep.yaml",
            {"command": ["python", "no.py", "${args}"], "environment.working_dir": "deep"},
        )


@pytest.mark.parametrize("runs", [TRAINABLE, COMMAND])
def test_a_sweep_runs_and_goes_on_from_any_folder(project, hposvc, monkeypatch, runs):
    wider = SPEC.replace("[0.0, 1.0]", "[0.0, 1.0, 2.0]")  # the fork has one left to try
    (project / "sweep.yaml").write_text(runs + wider + UNTRACKED)
    relative = os.path.relpath(project / "sweep.yaml")
    assert hposvc("run", relative, "--id", "a", "--set", "trials.max=1").code == 0
    here = Path.cwd()
    monkeypatch.chdir("/")
    code, _, err = hposvc("extend", "a", "--trials", "1")
    assert code == 0, err
    assert Path.cwd() == Path("/") != here
    code, out, err = hposvc("trials", "a", "-o", "json")
    assert [trial["state"] for trial in json.loads(out)] == ["COMPLETED"] * 2, err
    code, _, err = hposvc("fork", "a", "--set", "trials.max=1", "--id", "b")
    assert code == 0, err
    code, out, _ = hposvc("best", "b", "-o", "json")
    assert json.loads(out)["value"] >= 2.0  # the trial read offset.txt, beside the spec


def test_a_spec_comes_from_standard_input(project, hposvc, monkeypatch):
    class Stdin:
        def __init__(self, text):
            self.buffer = io.BytesIO(text.encode())

    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "stdin", Stdin(TRAINABLE + SPEC + UNTRACKED))
    code, _, err = hposvc("run", "-", "--id", "piped", "--debug")
    assert code == 0, err
    monkeypatch.setattr(sys, "stdin", Stdin(TRAINABLE + SPEC + "serch: grid\n"))
    code, _, err = hposvc("validate", "-")
    assert code == 2
    assert "<stdin>:10:1: serch: no such key; did you mean 'search'?" in err


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", ["script", *sys.path])
    monkeypatch.setattr(places, "_spec_folders", set())
    made = [tmp_path / name for name in ("first", "second")]
    for folder in made:
        folder.mkdir()
    return list(map(str, made))


def test_modules_of_another_spec_s_folder_come_last(folders):
    """Two sweeps may each have a module `train`, and one process reads both."""
    first, second = folders
    places.import_first(first)
    places.import_too(second)
    assert (sys.path[:2], sys.path[-1]) == ([second, "script"], first)
    places.import_too(first)
    assert (sys.path[:2], sys.path[-1]) == ([first, "script"], second)
    places.import_too(None)
    assert (sys.path[0], sys.path[-2:]) == ("script", [first, second])


def test_paths_of_a_ray_job_begin_in_its_working_folder(project, monkeypatch):
    """Ray unpacks the same files into another folder on each cluster."""
    recorded = []
    for session in ("one", "two"):
        place = project / session / "runtime_resources" / "working_dir_files" / "_ray_pkg_a1b2"
        place.parent.mkdir(parents=True)
        place.mkdir()
        (place / "s.yaml").write_text(
            "trainable: train.py:train\nstorage: /shared\nengine: ray\n"
            "metric: {name: loss, goal: minimize}\ntrials: {max: 1}\n"
            "parameters: {lr: {min: 0.1, max: 1.0}}\nenvironment: {env: {HERE: "
            + f"{place}"
            + "}}\n"
        )
        monkeypatch.chdir(place)
        spec = load(place / "s.yaml")
        assert (spec.folder, spec.trainable, spec.storage) == (None, "train.py:train", "/shared")
        assert spec.environment.env == {"HERE": f"{place}"}
        recorded.append(dump(spec) | {"environment": None})
    assert recorded[0] == recorded[1]
