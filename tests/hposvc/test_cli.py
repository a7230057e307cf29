"""The command line as its users know it: what it prints, and what it exits with."""

import json
import re
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from hposvc.cli import commands, main
from hposvc.commands.later import LATER
from trainables.slots.assignment import log_file

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
# Six trials of a grid, over in no time; MLflow is not told of simulations without a maximum.
SPEC = {
    "name": "valley",
    "project": "tests",
    "tags": {"team": "blue"},
    "engine": {"type": "simulate", "curve": "curves:valley"},
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 3},
    "parameters": {"x": {"values": [1, 2, 3, 4, 5, 6], "ordered": True}, "width": 64},
    "search": "grid",
    "budget": {"wall": "1h"},
}
BEST = {"sweep", "trial", "params", "value", "metrics", "step", "checkpoint", "mlflow_run_id"}
TRIAL = {"trial", "state", "reason", "params", "value", "metrics", "step", "attempts"}
STATUS = {"sweep", "state", "trials", "best", "elapsed_s", "gpu_hours", "driver"}
LISTED = {"sweep", "name", "project", "state", "created", "trials", "best_value", "front"}


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def data(self):
        return json.loads(self.out)


@pytest.fixture
def hposvc(tmp_path, monkeypatch, capfd):
    """Runs the command line in this process, in this folder."""
    monkeypatch.chdir(HERE)
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in ("HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path / "home"))

    def run(*arguments):
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Answer(left.value.code or 0, captured.out, captured.err)

    return run


@pytest.fixture
def spec(tmp_path):
    """Writes the spec, with other values at some keys; JSON is YAML too."""

    def write(**changes):
        path = tmp_path / "spec.yaml"
        path.write_text(json.dumps({**SPEC, **changes}))
        return path

    return write


def curve(name):
    return {"engine": {"type": "simulate", "curve": f"curves:{name}"}}


def test_run_prints_the_status_and_others_print_what_the_contract_says(hposvc, spec):
    ran = hposvc("run", spec(), "--id", "valley-1", "-o", "json")
    assert ran.code == 0
    assert "valley-1" in ran.err
    assert ran.data.keys() >= STATUS
    counts = {"total": 6, "running": 0, "paused": 0, "completed": 6, "stopped": 0, "failed": 0}
    assert ran.data["trials"] == counts
    assert (ran.data["state"], ran.data["driver"]) == ("COMPLETED", "none")
    best = hposvc("best", "valley-1", "-o", "json").data
    assert best.keys() == BEST
    assert best["params"] == {"x": 3, "width": 64}
    assert best["value"] == best["metrics"]["loss"] == pytest.approx(1 / 3)
    assert best["step"] == 3
    assert ran.data["best"] == best
    assert hposvc("status", "last", "-o", "json").data == ran.data
    trials = hposvc("trials", "valley", "-o", "json").data
    assert len(trials) == 6
    more = {"shrink", "gpu_hours", "mlflow_run_id", "parent", "kept"}
    assert all(trial.keys() == TRIAL | more for trial in trials)
    [listed] = hposvc("ls", "-o", "json").data
    assert listed.keys() == LISTED
    assert (listed["trials"], listed["best_value"]) == (6, best["value"])


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
    assert [one["params"]["x"] for one in front] == [4, 3, 2, 1]  # the best loss first
    assert front[0]["value"] == [front[0]["metrics"]["loss"], 4]
    trials = hposvc("trials", "sizes", "-o", "json").data
    assert [(one["value"][1], one["kept"]) for one in trials if one["kept"] is False] == [
        (5.0, False),
        (6.0, False),
    ]
    [listed] = hposvc("ls", "-o", "json").data
    assert (listed["best_value"], listed["front"]) == (None, 4)


def test_people_see_the_front_in_every_table(hposvc, spec):
    ran = hposvc("run", spec(**SEVERAL), "--id", "sizes")
    assert re.search(r"t000\d is on the front of \d, loss [\d.]+, size \d", ran.err)
    assert re.search(r"loss +size +trial +step +configuration", ran.out)
    assert re.search(r"9.3333 +3 +t000\d +3 +x=3", ran.out)
    assert re.search(r"sizes +COMPLETED +6 +front of 4 +tests", hposvc("ls").out)
    assert re.search(r"6 +1 +x=6 +beyond a limit", hposvc("trials", "sizes").out)
    assert re.search(r"9.3333 +3 +t000\d", hposvc("best", "sizes").out)
    assert re.search(r"front +loss +size", hposvc("status", "sizes").out)
    plan = hposvc("validate", spec(**SEVERAL)).out
    assert re.search(r"metrics +minimize the last loss; minimize the last size", plan)
    assert re.search(r"limits +size <= 4", plan)


def test_limits_that_no_trial_keeps_leave_no_best(hposvc, spec):
    ran = hposvc("run", spec(limits=["loss <= -1"]), "-o", "json")
    assert (ran.code, ran.data["best"]) == (3, None)
    assert ran.data["reason"] == "no trial keeps the limits"
    assert "has a value within the limits yet" in hposvc("best", "last").err
    assert "no trial keeps the limits yet" in hposvc("status", "last").out


def test_a_limit_on_a_metric_that_nobody_reports_is_told_once_by_name(hposvc, spec, caplog):
    """A misspelled name must not make every trial fail in silence."""
    ran = hposvc("run", spec(limits=["los <= 9"]), "-o", "json")
    assert caplog.text.count("reported no los, which a limit is on (did you mean 'loss'?)") == 1
    assert ran.code == 3


def test_options_may_stand_before_the_verb(hposvc, spec, tmp_path):
    assert hposvc("-o", "json", "--home", tmp_path / "other", "run", spec()).data["sweep"]
    assert len(hposvc("--home", tmp_path / "other", "ls", "-o", "json").data) == 1
    assert hposvc("ls", "-o", "json").data == []


def test_tables_have_what_people_look_for(hposvc, spec):
    ran = hposvc("run", spec(**curve("torn")), "--id", "valley-1")
    assert "valley-1 COMPLETED" in ran.out
    assert "5 completed · 1 failed" in ran.out
    assert "ValueError: 2 is no good  → hposvc logs valley-1 t000" in ran.err
    assert re.search(r"valley-1 +COMPLETED +6 +0.33333 +tests", hposvc("ls").out)
    assert re.search(r"COMPLETED +3 +0.33333 +1 +x=3", hposvc("trials", "last").out)
    assert re.search(r"loss +0.33333 at step 3", hposvc("best", "last").out)
    assert "5 completed · 1 failed" in hposvc("status", "last").out


def test_nothing_is_cut_where_nobody_looks_at_a_screen(hposvc, spec):
    long = "a-very-" * 10 + "long-name"
    assert hposvc("run", spec(), "--id", long).code == 0
    assert long in hposvc("ls").out


def test_a_sweep_without_a_value_exits_3(hposvc, spec):
    ran = hposvc("run", spec(**curve("broken")), "-o", "json")
    assert ran.code == 3
    assert (ran.data["state"], ran.data["best"]) == ("FAILED", None)
    assert "and 1 more" in ran.err
    assert hposvc("best", "last", "-o", "json").data is None
    assert hposvc("resume", "last").code == 0


def test_ls_looks_for_project_tag_and_age(hposvc, spec):
    hposvc("run", spec())
    for fitting in (["--project", "tests"], ["--tag", "team"], ["--tag", "team=blue"]):
        assert len(hposvc("ls", *fitting, "-o", "json").data) == 1
    assert len(hposvc("ls", "--since", "1h", "-o", "json").data) == 1
    for other in (["--project", "x"], ["--tag", "team=red"], ["--since", "2999-01-01"]):
        assert hposvc("ls", *other, "-o", "json").data == []
    assert hposvc("ls", "--since", "yesterday").code == 2


def test_validate_prints_types_and_plan(hposvc, spec):
    said = hposvc("validate", spec(), "--set", "scheduler=asha", "--set", "fidelity.max=9").out
    assert re.search(r"x +choice +1, 2, 3, 4, 5, 6 +ordered", said)
    assert re.search(r"scheduler +asha, rungs at 1, 3, 9", said)
    data = hposvc("validate", spec(), "-o", "json").data
    assert data["spec"]["name"] == "valley"
    assert data["parameters"]["x"]["type"] == "choice"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "Usage: hposvc"),
        (("runn",), 2, "Did you mean"),
        (("run",), 2, "hposvc run --help"),
        (("run", "missing.yaml"), 2, "missing.yaml: cannot be read"),
        (("validate", "curves.py"), 2, "curves.py:1:"),
        (("plan", "x.yaml"), 2, "not there yet"),
        (("stop", "last", "--drain"), 4, "no such sweep"),
        (("status", "nobody"), 4, "there is none yet"),
        (("kill", "last"), 4, "last: no such sweep"),
    ],
)
def test_an_error_is_a_line_on_stderr_and_a_code(hposvc, arguments, code, said):
    answer = hposvc(*arguments)
    assert (answer.code, answer.out) == (code, "")
    assert said in answer.err
    assert "Traceback" not in answer.err


def test_a_bad_spec_says_where(hposvc, spec):
    answer = hposvc("run", spec(), "--set", "trials.mx=3", "-o", "json")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "--set trials.mx: no such key; did you mean 'max'?\n"


def test_an_id_is_used_once_and_stays_in_its_folder(hposvc, spec):
    assert hposvc("run", spec(), "--id", "mine").code == 0
    again = hposvc("run", spec(), "--id", "mine")
    assert again.code == 2
    assert "hposvc resume mine" in again.err
    assert hposvc("run", spec(), "--id", "../mine").code == 2


def test_trials_that_are_not_there_exit_4(hposvc, spec):
    hposvc("run", spec(), "--id", "mine")
    for command in (("logs", "mine", "t9999"), ("kill", "mine", "t9999")):
        assert hposvc(*command).code == 4


def test_a_database_out_of_reach_exits_5(hposvc, monkeypatch, tmp_path):
    address = "postgresql+psycopg://me:secret@127.0.0.1:1/none?connect_timeout=1"
    monkeypatch.setenv("HPOSVC_DB", address)
    answer = hposvc("ls")
    assert answer.code == 5
    assert "secret" not in answer.err
    monkeypatch.delenv("HPOSVC_DB")
    (tmp_path / "file").touch()
    assert hposvc("ls", "--home", tmp_path / "file" / "home").code == 5


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


def test_logs_are_those_of_the_failed_or_else_of_the_last(hposvc, spec, tmp_path):
    hposvc("run", spec(**curve("torn")), "--id", "mine")
    assert "no log files" in hposvc("logs", "mine").err
    trials = hposvc("trials", "mine", "-o", "json").data
    [failed] = [trial["trial"] for trial in trials if trial["state"] == "FAILED"]
    for order, rank in [(2, 0), (10, 1), (10, 0)]:
        file = log_file(tmp_path / "home" / "sweeps" / "mine", failed, order, rank)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"order {order} rank {rank} wrote {{this}}\n")
    found = hposvc("logs", "mine", "-o", "json").data
    assert [(log["trial"], log["order"], log["rank"]) for log in found] == [
        (failed, 2, 0),
        (failed, 10, 0),
        (failed, 10, 1),
    ]
    assert found[0]["text"] == "order 2 rank 0 wrote {this}\n"
    assert Path(found[0]["path"]).is_file()
    said = hposvc("logs", "mine", failed, "--rank", "1").out
    assert said == "order 10 rank 1 wrote {this}\n"
    assert f"==> {failed}, order 10, rank 1: " in hposvc("logs", "mine", failed).out


def test_every_verb_of_the_contract_is_there_or_refused():
    page = (ROOT / "docs" / "CONTRACT.md").read_text()
    table = page.partition("| verb | does | piece |")[2].partition("\n\n")[0]
    cells = [line.split(" | ")[0] for line in table.splitlines()[2:]]
    promised = {word for cell in cells for word in re.findall(r"`([a-z]+)", cell)}
    assert promised == set(commands.commands) - {"drive", "answer"}  # which only jobs run
    for line in table.splitlines()[2:]:
        verbs, pieces = re.findall(r"`([a-z]+)", line.split(" | ")[0]), line.split(" | ")[-1]
        if re.fullmatch(r"1 \|", pieces):
            assert not set(verbs) & set(LATER)


def test_help_answers_at_once():
    command = [sys.executable, "-m", "hposvc", "--help"]
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < 0.3


def test_the_command_line_loads_nothing_heavy():
    heavy = (
        "ray",
        "torch",
        "mlflow",
        "optuna",
        "scipy",
        "numpy",
        "pandas",
        "pydantic",
        "sqlalchemy",
    )
    code = f"import sys, hposvc.cli; print([name for name in {heavy} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert loaded.stdout == "[]\n"
