import json
import os
import sys
from pathlib import Path

import pytest

from hposvc import api
from hposvc import spec as specs


def curve(name):
    return {"engine": {"type": "simulate", "curve": f"curves:{name}"}}


def test_run_prints_the_status_and_others_print_what_the_contract_says(hposvc, spec):
    ran = hposvc("run", spec(), "--id", "valley-1", "-o", "json")
    assert ran.code == 0
    assert "valley-1" in ran.err
    none = dict.fromkeys(("running", "interrupted", "paused", "stopped", "failed"), 0)
    assert ran.data["trials"] == {**none, "total": 6, "completed": 6}
    assert (ran.data["state"], ran.data["driver"]) == ("COMPLETED", "none")
    best = hposvc("best", "valley-1", "-o", "json").data
    assert best["params"] == {"x": 3, "width": 64}
    assert best["value"] == best["metrics"]["loss"] == pytest.approx(1 / 3)
    assert best["step"] == 3
    assert ran.data["best"] == best
    assert hposvc("status", "last", "-o", "json").data == ran.data
    assert len(hposvc("trials", "valley", "-o", "json").data) == 6
    [listed] = hposvc("ls", "-o", "json").data
    assert (listed["trials"], listed["best_value"]) == (6, best["value"])


def test_a_run_parses_its_spec_once(hposvc, spec, monkeypatch):
    fill, parsed = specs.fill, []
    monkeypatch.setattr(specs, "fill", lambda *given: parsed.append(given[0]) or fill(*given))
    assert hposvc("run", spec(), "--id", "once").code == 0
    assert parsed == [specs.SweepSpec]


def test_a_sweep_without_a_value_exits_3(hposvc, spec):
    ran = hposvc("run", spec(**curve("broken")), "-o", "json")
    assert ran.code == 3
    assert (ran.data["state"], ran.data["best"]) == ("FAILED", None)
    assert "3 of 3 trials failed before any reported; the first was t0001: ValueError" in ran.err
    assert hposvc("best", "last", "-o", "json").data is None
    assert hposvc("resume", "last").code == 0


def test_an_id_is_used_once_and_stays_in_its_folder(hposvc, spec):
    assert hposvc("run", spec(), "--id", "mine").code == 0
    again = hposvc("run", spec(), "--id", "mine")
    assert again.code == 2
    assert "hposvc resume mine" in again.err
    assert hposvc("run", spec(), "--id", "../mine").code == 2


def test_a_sweep_whose_cluster_is_not_there_leaves_nothing(hposvc, spec, tmp_path):
    changes = {"engine": "ray", "trainable": "trainables.zoo.digits:DigitsCNN"}
    changes |= {"parameters": {"lr": {"min": 0.1, "max": 1.0}}}
    answer = hposvc("run", spec(**changes), "--id", "mine", "--address", "127.0.0.1:1")
    assert answer.code == 5, answer.err
    assert "no Ray cluster answers at 127.0.0.1:1" in answer.err
    assert hposvc("ls", "-o", "json").data == []
    assert list((tmp_path / "home" / "sweeps").iterdir()) == []
    assert hposvc("run", spec(), "--id", "mine").code == 0


def test_run_with_resume_begins_a_sweep_or_continues_it(hposvc, spec):
    """Cron and requeued jobs run one and the same command."""
    command = ("run", spec(), "--id", "nightly", "--resume")
    assert hposvc(*command).code == 0
    before = hposvc("status", "nightly", "-o", "json").data
    again = hposvc(*command, "-o", "json")
    assert (again.code, again.data["state"]) == (0, "COMPLETED")
    assert again.data == before, "a completed sweep is only summarized"


def test_run_with_resume_continues_a_sweep_whose_driver_is_gone(hposvc, spec):
    api.create(api.Sweeps.open(), specs.load(spec()), "nightly")
    ran = hposvc("run", spec(), "--id", "nightly", "--resume", "-o", "json")
    assert (ran.code, ran.data["state"], ran.data["trials"]["completed"]) == (0, "COMPLETED", 6)


def test_run_with_resume_refuses_another_spec_and_names_the_differences(hposvc, spec):
    command = ("run", spec(), "--id", "nightly", "--resume")
    assert hposvc(*command).code == 0
    other = hposvc(*command, "--set", "trials.max=7", "--set", "seed=3")
    assert other.code == 2
    assert "trials.max is empty (null) there and 7 here; seed is 0 there and 3 here" in other.err
    assert "hposvc extend nightly" in other.err


@pytest.mark.full
def test_a_dead_tracker_is_named_at_once_and_costs_a_sweep_neither_its_end_nor_its_code(
    hposvc, spec
):
    path = spec(tracking={"uri": "http://127.0.0.1:9"})
    done = hposvc("run", path, "--id", "mine")
    assert done.code == 0, done.err
    assert "MLflow was not sent" in done.out
    assert "when it answers: hposvc resume mine" in done.out
    sent = hposvc("resume", "mine")
    assert sent.code == 5
    assert "MLflow was not sent" in sent.out


PRINTS = {"metric": {"name": "loss", "goal": "minimize"}, "parameters": {"x": {"values": [1, 2]}}}
PRINTS |= {"collect": {"stdout": r"loss=(?P<loss>\S+)"}, "search": "grid", "trials": {"max": 2}}
PRINTS |= {"engine": "local", "tracking": {"send_to": []}, "fidelity": None, "scheduler": "fifo"}


@pytest.mark.parametrize("starts", [["python"], ["sh", "-c"]])
def test_a_run_says_which_python_it_takes_where_the_shell_has_another(
    hposvc, tmp_path, monkeypatch, starts
):
    """A script that works in a shell fails in all trials where hposvc's Python lacks a module."""
    shells = tmp_path / "bin" / "python"
    shells.parent.mkdir()
    shells.symlink_to(sys.executable)
    (tmp_path / "t.py").write_text("import sys; print('loss=1', file=sys.stdout)")
    monkeypatch.chdir(tmp_path)
    items = ["t.py", "${args}"] if starts == ["python"] else ["python t.py ${args}"]
    file = tmp_path / "python.yaml"
    file.write_text(json.dumps({"name": "p", "command": [*starts, *items], **PRINTS}))
    usual = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{shells.parent}{os.pathsep}{usual}")
    ran = hposvc("run", str(file), "--id", "other")
    assert ran.code == 0
    line = next(line for line in ran.err.splitlines() if "which runs hposvc" in line)
    assert sys.executable in line
    assert f"your shell's is {shells}" in ran.err.replace("\n", " ")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{usual}")
    assert "which runs hposvc" not in hposvc("run", str(file), "--id", "own").err
