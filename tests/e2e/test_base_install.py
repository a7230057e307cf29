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


def hposvc(folder, *arguments, code=0):
    ended = subprocess.run(
        [sys.executable, "-m", "hposvc", *arguments],
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
    assert ended.returncode == code, ended.stderr
    return ended.stdout if code == 0 else ended.stderr


def test_each_extra_brings_what_tells_that_it_is_installed():
    names = {package for packages in EXTRAS.values() for package in packages}
    assert names <= {*hidden()}
    assert set(EXTRAS) < PROJECT["optional-dependencies"].keys()
    [everything] = PROJECT["optional-dependencies"]["all"]
    assert Requirement(everything).extras == {*EXTRAS, "export"}


def test_a_first_sweep_needs_no_extra(folder):
    hposvc(folder, "init", "train.py", "--yes", "--out", "sweep.yaml")
    hposvc(folder, "validate", "sweep.yaml")
    sets = ["--set", "engine=local", "--set", "trials.max=2", "--id", "first"]
    status = json.loads(hposvc(folder, "run", "sweep.yaml", *sets, "-o", "json"))
    assert (status["state"], status["trials"]["total"]) == ("COMPLETED", 2)
    log = folder / "home" / "sweeps" / "first" / "logs" / "recorder.log"
    assert "Traceback" not in (log.read_text() if log.exists() else "")
    assert "lr" in json.loads(hposvc(folder, "best", "first", "-o", "json"))["params"]
    shown = hposvc(folder, "best", "first")
    assert "after pip install 'hposvc[mlflow]' && mlflow ui" in " ".join(shown.split())
    assert hposvc(folder, "report", "first", "--out", "first.html")


def test_what_needs_an_extra_names_it(folder):
    hposvc(folder, "init", "train.py", "--yes", "--out", "other.yaml")
    refused = hposvc(folder, "run", "other.yaml", "--set", "engine=tune", code=2)
    expected = "engine: tune needs pyarrow, not installed here; pip install 'hposvc[tune]'"
    assert refused.strip() == expected
    refused = hposvc(folder, "laws", "last", "--plot", "law.png", code=2)
    assert re.search(r"--plot needs matplotlib.*; pip install 'hposvc\[plots\]'", refused)
