"""architecture.md against the code, so that newcomers can trust both."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
from sources import ROOT

from hposvc import Sweep
from hposvc.api import Sweeps
from hposvc.state.trial import TRANSITIONS

PAGES = {
    name: (ROOT / name).read_text()
    for name in ("docs/explanation/architecture.md", "CONTRIBUTING.md")
}
PAGE = PAGES["docs/explanation/architecture.md"]
FOLDERS = "hposvc|searchers|trainables|cluster|examples|benchmarks|tests|docs"
PATH = re.compile(rf"(?<![\w./-])((?:{FOLDERS})/[\w./-]*)(?::(\w+))?")
CURVE = """
def valley(params, step):
    return {"loss": (params["x"] - 3) ** 2 + 1 / step}, 1.0
"""


def test_the_page_has_the_layers_that_lint_holds():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(each["layers"] for each in config["contracts"] if each.get("exhaustive"))
    rows = re.findall(r"^\| \d+ \| (.*) \|$", PAGE, re.MULTILINE)
    rooms = [re.findall(r"`(\w+)`:", row) for row in rows]
    assert rooms == [
        *(layer.split(" | ") for layer in layers),
        ["searchers", "trainables", "cluster"],
    ]


@cache
def definitions(path: Path) -> set[str]:
    """Return the names of classes, functions and variables that a module defines."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


@pytest.mark.parametrize("name", PAGES)
def test_every_file_and_every_name_in_it_that_a_page_mentions_exists(name):
    links = re.findall(r"\]\((?!http)([^)#]+)", PAGES[name])
    assert not [link for link in links if not (ROOT / name).parent.joinpath(link).exists()]
    mentions = PATH.findall(PAGES[name])
    assert len(mentions) >= 4
    for path, defined in mentions:
        file = ROOT / path.rstrip(".")
        assert file.exists(), path
        assert not defined or defined in definitions(file), f"{path}:{defined}"


def test_the_life_of_a_trial_has_the_transitions_of_the_code():
    rows = re.findall(r"^\| `([A-Z]+)` \| .*? \| (.*) \|$", PAGE, re.MULTILINE)
    assert {phase: set(re.findall(r"`([A-Z]+)`", after)) for phase, after in rows} == TRANSITIONS


def test_the_program_reads_a_sweep(tmp_path, monkeypatch, capsys):
    (tmp_path / "curves_of_architecture.py").write_text(CURVE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HPOSVC_DB", raising=False)
    monkeypatch.delenv("HPOSVC_DB_FILE", raising=False)
    result = Sweep(
        engine={"type": "simulate", "curve": "curves_of_architecture:valley"},
        metric={"name": "loss", "goal": "minimize"},
        fidelity={"max": 3},
        parameters={"x": {"values": [1, 2, 3]}},
        search="grid",
        budget={"wall": "1h"},  # a simulation without trials.max is not sent to MLflow
    ).run(progress=False)
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(program, "docs/explanation/architecture.md", "exec"), {})
    *events, end, first = capsys.readouterr().out.splitlines()
    journal = Sweeps.open().journal
    assert len(events) == journal.last(journal.sweeps()[0].id)
    assert end == f"COMPLETED 3 {result.best.trial}"
    assert first.startswith("COMPLETED [(1, ")
