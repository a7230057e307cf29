"""What a sweep leaves on a terminal: every line, also those that have scrolled away."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from command_line import run as run_here
from pseudo_terminal import run_in_terminal

ROOT = Path(__file__).parents[2]
HPOSVC = (sys.executable, "-m", "hposvc")
NO_TRACKER = ("--set", "tracking.send_to=[]")
SCRIPT = """
    import argparse, os, sys
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    lr = parser.parse_args().lr
    for epoch in range(1, 4):
        print(f"epoch {epoch}: loss {lr / epoch}", flush=True)
        os.system("echo echoed")
        sys.stdout.write(" 5 %\\r50 %\\r100 %\\n")  # stderr is another pipe, in no order with this
        sys.stdout.flush()
"""
FUNCTION = """
    import logging, os, sys

    def train(params, worker):
        logging.basicConfig(level=logging.INFO, format="logged %(message)s")
        for step in worker.steps():
            print(f"epoch {step}", flush=True)
            os.system("echo echoed")
            sys.stderr.write(" 5 %\\r50 %\\r100 %\\n")
            logging.info("here")
            worker.report(step, {"loss": params["lr"] / step})
"""
TASK = """
    import os, sys
    from trainables.zoo.digits import DigitsCNN

    class Digits(DigitsCNN):
        def build_model(self):
            print("epoch", flush=True)
            os.system("echo echoed")
            sys.stderr.write(" 5 %\\r50 %\\r100 %\\n")
            return super().build_model()
"""
KINDS = {
    "script": {
        "command": ["python", "train.py", "${args}"],
        "collect": {"stdout": r"epoch (?P<step>\d+): loss (?P<loss>[\d.e-]+)"},
    },
    "function": {"trainable": "mine:train"},
    "Task": {
        "trainable": "task:Digits",
        "metric": {"name": "val/accuracy", "goal": "maximize"},
    },
}


@pytest.fixture
def folder(tmp_path):
    """A folder with a script, a function and a Task, and a spec for each; all print."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "mine.py").write_text(textwrap.dedent(FUNCTION))
    (tmp_path / "task.py").write_text(textwrap.dedent(TASK))
    for kind, code in KINDS.items():
        spec = {
            "metric": {"name": "loss", "goal": "minimize"},
            **code,
            "name": kind,
            "fidelity": {"max": 3},
            "parameters": {"lr": {"min": 0.001, "max": 0.1}},
            "trials": {"max": 3},
            "tracking": {"send_to": []},
        }
        (tmp_path / f"{kind}.yaml").write_text(json.dumps(spec))
    return tmp_path


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home for this process and those that it starts."""
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path / 'my home'}")
    # In CI a sweep of other tests writes no report; here its line is looked for.
    monkeypatch.setenv("HPOSVC_REPORT", "on")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}", prepend=os.pathsep)
    return tmp_path / "my home"


def check_history(lines, columns, sweep):
    """Check that there is one panel, that nothing else is in it, and that the summary is last."""
    text = "\n".join(lines)
    tops = [number for number, line in enumerate(lines) if line.startswith("╭")]
    bottoms = [number for number, line in enumerate(lines) if line.startswith("╰")]
    assert (len(tops), len(bottoms)) == (1, 1), text
    panel = lines[tops[0] : bottoms[0] + 1]
    assert all(len(line) == columns for line in panel), text
    assert all(line[0] + line[-1] == "││" for line in panel[1:-1]), text
    assert not {*"╭╰│╮╯"} & {*"".join([*lines[: tops[0]], *lines[bottoms[0] + 1 :]])}, text
    assert "starting" not in text, text
    assert "COMPLETED" in panel[-1], text
    assert lines[bottoms[0] + 1].startswith(f"{sweep} COMPLETED"), text
    assert any(line.startswith("report  ") for line in lines[bottoms[0] :]), text
    for printed in ("epoch 1", "echoed", "50 %", "logged"):
        assert printed not in text, text


@pytest.fixture
def logged(capfd):
    """Return what `hposvc logs` prints."""

    def run(*arguments):
        ended = run_here(capfd, "logs", *arguments)
        assert ended.code == 0, ended.err
        return ended.out

    return run


def started(folder, *arguments, **options):
    """Run a command that has no terminal."""
    return subprocess.run(
        [*HPOSVC, *arguments], cwd=folder, capture_output=True, text=True, check=True, **options
    )


# Sweeps of other code have these widths in the next test.
@pytest.mark.long
@pytest.mark.parametrize(
    "columns", [80, *(pytest.param(columns, marks=pytest.mark.full) for columns in (100, 120))]
)
def test_the_first_commands_of_the_readme_leave_one_panel(folder, home, logged, columns):
    first = next(
        line for line in (ROOT / "README.md").read_text().splitlines() if "hposvc init" in line
    )
    init = first.partition("#")[0].split()[1:]
    started(folder, *init)
    run = ("run", "sweep.yaml", "--set", "engine=local", "--set", "trials.max=4", "--id", "first")
    tracked = columns == 80  # by MLflow, as the README has it; it takes seconds to import
    lines = run_in_terminal([*HPOSVC, *run, *(() if tracked else NO_TRACKER)], columns, folder)
    check_history(lines, columns, "first")
    if tracked:
        joined = "".join(
            line.ljust(columns) if len(line) == columns - 1 else line for line in lines
        )
        assert f"mlflow ui --backend-store-uri 'sqlite:///{home}/mlflow.db'" in joined
    assert "epoch 1: accuracy" in logged("first", "t0001")


@pytest.mark.parametrize(
    ("kind", "columns", "engine"),
    [
        ("script", 80, "local"),
        pytest.param("function", 100, "local", marks=pytest.mark.full),
        pytest.param("Task", 100, "local", marks=pytest.mark.long),
        pytest.param("script", 120, "ray", marks=[pytest.mark.full, pytest.mark.ray]),
        pytest.param("function", 80, "ray", marks=[pytest.mark.long, pytest.mark.ray]),
        pytest.param("script", 120, "local", marks=pytest.mark.full),
        pytest.param("function", 80, "local", marks=pytest.mark.full),
        pytest.param("Task", 100, "ray", marks=[pytest.mark.full, pytest.mark.ray]),
    ],
)
def test_nothing_stands_in_a_panel_and_logs_have_what_was_printed(
    folder, logged, kind, columns, engine
):
    settings = ("--set", "engine=local") if engine == "local" else ()
    run = (*HPOSVC, "run", f"{kind}.yaml", *settings, "--id", "s")
    check_history(run_in_terminal(run, columns, folder), columns, "s")
    for trial in ("t0001", "t0003"):
        lines = logged("s", trial).splitlines()
        times = 1 if kind == "Task" else 3
        for printed in (
            "epoch",
            "echoed",
            "100 %",
            *(["logged here"] if kind == "function" else []),
        ):
            assert sum(line.startswith(printed) for line in lines) == times, lines
        assert "50 %" not in "".join(lines)


def test_a_debugger_reads_and_writes_the_terminal(folder):
    code = (folder / "mine.py").read_text()
    (folder / "mine.py").write_text(
        code.replace('print(f"epoch', 'print(input("say: ")); print(f"epoch')
    )
    command = ("run", "function.yaml", "--debug", "--id", "s")
    ended = started(folder, *command, input="one\ntwo\nthree\n")
    assert [ended.stderr.count(f"say: {word}\n") for word in ("one", "two", "three")] == [1, 1, 1]
    assert ended.stdout.startswith("s COMPLETED")


def test_where_there_is_no_terminal_a_trial_s_lines_are_shown_too(folder, logged):
    ended = started(folder, "run", "function.yaml", "--set", "engine=local", "--id", "s")
    assert ended.stderr.count("epoch 3") == ended.stderr.count("echoed") // 3 == 3
    assert "epoch" not in ended.stdout
    log = logged("s", "t0002")
    assert log.count("epoch") == 3
    assert "t000" not in log, "the driver's lines are no trial's"
