"""`pip install hposvc` without extras is enough for a first sweep, and says what it lacks."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hposvc.errors import EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Coverage may measure these tests; torch takes optree for installed if its metadata is; and Ray has
# a colorama of its own.
KEPT = {"hposvc", "colorama", "coverage", "optree"}
SCRIPT = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args()
for epoch in range(args.epochs):
    print(f"epoch {epoch} loss={(args.lr - 0.03) ** 2 / (epoch + 1)}")
"""
# All commands in one interpreter; a line of JSON for each: its code, output and errors.
COMMANDS = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from hposvc.cli.main import main
for command in json.loads(sys.argv[1]):
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            main(command)
        except SystemExit as end:
            code = end.code or 0
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
# Python imports this by itself as it starts; what is hidden is then as if it were not installed.
HIDE = """
from importlib.machinery import PathFinder

HIDDEN, find = {}, PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: (
    None if name.partition(".")[0] in HIDDEN else find(name, *rest)
)
"""


def brought(requirements):
    """Return the names of all packages that pip installs for requirements, as far as it did so."""
    left, names = [(Requirement(text), "") for text in requirements], set()
    done = set()
    while left:
        requirement, extra = left.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in {"", *requirement.extras}:
            if (name, wanted) in done:
                continue
            done.add((name, wanted))
            try:
                needs = distribution(name).requires or ()
            except PackageNotFoundError:
                continue
            names.add(name)
            left += [(Requirement(text), wanted) for text in needs]
    return names


def hidden():
    """Return the names by which packages are imported that the base install does not bring."""
    base = brought(PROJECT["dependencies"]) | KEPT
    return sorted(
        name
        for name, packages in packages_distributions().items()
        if not base & {canonicalize_name(package) for package in packages}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a program, whose processes import nothing but what the base install brings."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "sitecustomize.py").write_text(HIDE.format(hidden()))
    (folder / "train.py").write_text(SCRIPT)
    return folder


def python(folder, *arguments):
    ended = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
        timeout=240,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
            "HPOSVC_HOME": str(folder / "home"),
        },
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def commands(folder, *lines):
    """Return code, output and errors of commands, all in one process: to start takes seconds."""
    return [*map(json.loads, python(folder, "-c", COMMANDS, json.dumps(lines)).splitlines())]


def test_each_extra_brings_what_tells_that_it_is_installed():
    names = {package for packages in EXTRAS.values() for package in packages}
    assert names <= {*hidden()}
    assert set(EXTRAS) < PROJECT["optional-dependencies"].keys()
    [everything] = PROJECT["optional-dependencies"]["all"]
    assert Requirement(everything).extras == {*EXTRAS, "export"}


@pytest.mark.long
def test_a_first_sweep_needs_no_extra(folder):
    begun = commands(
        folder,
        ["init", "train.py", "--yes", "--out", "sweep.yaml"],
        ["validate", "sweep.yaml"],
    )
    assert [code for code, *_ in begun] == [0, 0], begun
    sets = ["--set", "engine=local", "--set", "trials.max=2", "--id", "first"]
    status = json.loads(python(folder, "-m", "hposvc", "run", "sweep.yaml", *sets, "-o", "json"))
    assert (status["state"], status["trials"]["total"]) == ("COMPLETED", 2)
    log = folder / "home" / "sweeps" / "first" / "logs" / "recorder.log"
    assert "Traceback" not in (log.read_text() if log.exists() else "")
    ended = commands(
        folder,
        ["best", "first", "-o", "json"],
        ["best", "first"],
        ["report", "first", "--out", "first.html"],
    )
    assert [code for code, *_ in ended] == [0, 0, 0], ended
    best, shown, report = (out for _, out, _ in ended)
    assert "lr" in json.loads(best)["params"]
    assert "after pip install 'hposvc[mlflow]' && mlflow ui" in " ".join(shown.split())
    assert report


@pytest.mark.long
def test_what_needs_an_extra_names_it(folder):
    (begun, *_), (ran, _, tune), (drawn, _, plot) = commands(
        folder,
        ["init", "train.py", "--yes", "--out", "other.yaml"],
        ["run", "other.yaml", "--set", "engine=tune"],
        ["laws", "last", "--plot", "law.png"],
    )
    assert (begun, ran, drawn) == (0, 2, 2)
    expected = "engine: tune needs pyarrow, not installed here; pip install 'hposvc[tune]'"
    assert tune.strip() == expected
    assert re.search(r"--plot needs matplotlib.*; pip install 'hposvc\[plots\]'", plot)
