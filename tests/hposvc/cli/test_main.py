"""The command line as its users know it: its output and its exit codes."""

import re
from pathlib import Path

import pytest


def curve(name):
    return {"engine": {"type": "simulate", "curve": f"curves:{name}"}}


SEVERAL = {
    "metric": None,
    "metrics": [{"name": "loss", "goal": "minimize"}, {"name": "size", "goal": "minimize"}],
    "limits": ["size <= 4"],
    **curve("sized"),
}


def test_several_metrics_have_a_front_wherever_one_has_a_best(hposvc, spec):
    ran = hposvc("run", spec(**SEVERAL), "--id", "sizes", "-o", "json")
    assert (ran.code, ran.data["state"]) == (0, "COMPLETED")
    front = hposvc("best", "sizes", "-o", "json").data
    assert ran.data["best"] == front
    assert [trial["params"]["x"] for trial in front] == [4, 3, 2, 1]  # the best loss first
    assert front[0]["value"] == [front[0]["metrics"]["loss"], 4]
    trials = hposvc("trials", "sizes", "-o", "json").data
    assert [(trial["value"][1], trial["kept"]) for trial in trials if trial["kept"] is False] == [
        (5.0, False),
        (6.0, False),
    ]
    [listed] = hposvc("ls", "-o", "json").data
    assert (listed["best_value"], listed["front"]) == (None, 4)


def test_people_see_the_front_in_every_table(hposvc, spec):
    ran = hposvc("run", spec(**SEVERAL), "--id", "sizes")
    assert re.search(r"t000\d joins the Pareto front \(\d trials?\), loss [\d.]+, size \d", ran.err)
    assert re.search(r"loss +size +trial +step +configuration", ran.out)
    assert re.search(r"9.3333 +3 +t000\d +3 +x=3", ran.out)
    assert re.search(r"sizes +COMPLETED +6 +front of 4 +tests", hposvc("ls").out)
    assert re.search(r"6 +3s +beyond a limit +x=6", hposvc("trials", "sizes").out)
    assert re.search(r"9.3333 +3 +t000\d", hposvc("best", "sizes").out)
    assert re.search(r"front +loss +size", hposvc("status", "sizes").out)
    plan = hposvc("validate", spec(**SEVERAL)).out
    assert re.search(r"metrics +minimize loss; minimize size", plan)
    assert re.search(r"limits +size <= 4", plan)


def test_limits_that_no_trial_keeps_leave_no_best(hposvc, spec):
    ran = hposvc("run", spec(limits=["loss <= -1"]), "-o", "json")
    assert (ran.code, ran.data["best"]) == (3, None)
    assert ran.data["reason"] == "no trial keeps the limits"
    assert "has a value within the limits yet" in hposvc("best", "last").err
    assert "no trial keeps the limits yet" in hposvc("status", "last").out


def test_tables_have_what_people_look_for(hposvc, spec):
    ran = hposvc("run", spec(**curve("torn")), "--id", "valley-1")
    assert "valley-1 COMPLETED" in ran.out
    assert "5 completed · 1 failed" in ran.out
    assert "ValueError: 2 is no good  → hposvc logs valley-1 t000" in ran.err
    assert re.search(r"valley-1 +COMPLETED +6 +0.33333 +tests", hposvc("ls").out)
    assert re.search(r"COMPLETED +3 +0.33333 +3s +– +x=3", hposvc("trials", "last").out)
    assert re.search(r"loss +0.33333 at step 3", hposvc("best", "last").out)
    assert "5 completed · 1 failed" in hposvc("status", "last").out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "Usage: hposvc"),
        (("rum",), 2, "Did you mean 'run'?"),
        (("run",), 2, "hposvc run --help"),
        (("run", "missing.yaml"), 2, "missing.yaml: cannot be read"),
        (("run", "train.py"), 2, "`hposvc init train.py` writes a spec for a script"),
        (("validate", "curves.py"), 2, "curves.py: is Python, no spec"),
        (("import", "x.yaml"), 2, "x.yaml: cannot be read"),
        (("importance", "last"), 2, "hposvc why ID"),
        (("plot", "last"), 2, "`hposvc report ID` draws"),
        (("trials",), 2, "hposvc trials --help"),
        (("stop", "last", "--drain"), 4, "no such sweep"),
        (("status", "nobody"), 4, "there is none yet, `hposvc run SPEC` starts one"),
        (("kill", "last"), 4, "last: no such sweep"),
    ],
)
def test_an_error_is_a_line_on_stderr_and_a_code(hposvc, arguments, code, said):
    answer = hposvc(*arguments)
    assert (answer.code, answer.out) == (code, "")
    assert said in answer.err
    assert "Traceback" not in answer.err


def test_a_database_out_of_reach_exits_5(hposvc, monkeypatch, tmp_path):
    address = "postgresql+psycopg://me:secret@127.0.0.1:1/none?connect_timeout=1"
    monkeypatch.setenv("HPOSVC_DB", address)
    answer = hposvc("ls")
    assert answer.code == 5
    assert "secret" not in answer.err
    monkeypatch.delenv("HPOSVC_DB")
    (tmp_path / "file").touch()
    answer = hposvc("ls", "--home", tmp_path / "file" / "home")
    assert answer.code == 2
    assert "Not a directory; set HPOSVC_HOME to a folder that you can write" in answer.err


def test_a_searcher_of_ones_own_that_raises_is_named_with_its_line(hposvc, spec):
    answer = hposvc("run", spec(search="curves:Stubborn"))
    assert answer.code == 2
    line = answer.err.splitlines()[-1]
    assert "search.method curves:Stubborn raised RuntimeError: out of ideas" in line
    assert "curves.py:" in line
    assert "hposvc resume" in line


def test_a_bug_leaves_its_traceback_in_a_file(hposvc, spec, monkeypatch):
    def suggest(self, space, history, n, rng):
        raise RuntimeError("out of ideas")

    monkeypatch.setattr("searchers.random_search.Random.suggest", suggest)
    answer = hposvc("run", spec(search="random"))
    assert answer.code == 1
    line = answer.err.splitlines()[-1]
    assert line.startswith("hposvc broke, which is a bug: RuntimeError: out of ideas; ")
    text = Path(line.rpartition(" ")[2]).read_text()
    assert text.startswith("Traceback")
    assert "in suggest" in text


DELETES = """
import os, shutil

def train(params, worker):
    for step in worker.steps():
        shutil.rmtree(os.environ["HPOSVC_HOME"], ignore_errors=True)
        worker.report(step, {"loss": 1.0})
"""


def test_a_home_that_is_deleted_amid_a_run_is_no_bug_and_is_not_made_again(hposvc, spec, tmp_path):
    (tmp_path / "deletes.py").write_text(DELETES)
    changes = {"engine": "local", "trainable": f"{tmp_path / 'deletes.py'}:train"}
    answer = hposvc("run", spec(**changes))
    assert answer.code == 5, answer.err
    assert "bug" not in answer.err
    assert not (tmp_path / "home" / "errors").exists()
