"""The wheel holds all that is needed: installed alone, far from this checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
PACKAGES = ("hposvc", "hydra_plugins", "searchers", "trainables", "cluster")
SPEC = """
engine: {type: simulate, curve: "valley:curve"}
metric: {name: loss, goal: minimize}
fidelity: {max: 3}
parameters: {lr: {min: 1e-4, max: 1e-1, log: true}}
trials: {max: 3}
"""
SCRIPTS = "docs/how-to/scripts.md"
CURVE = """
def curve(params, step):
    return {"loss": params["lr"] / step}, 1.0
"""


def run(*command, cwd):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=240,
        check=False,
        env={**environment, "HPOSVC_HOME": str(cwd / "home")},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Our wheel, in a folder of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    skipped = shutil.ignore_patterns("__pycache__")
    for name in (
        *PACKAGES,
        "docs",
    ):  # a copy: an old build/ or egg-info in the checkout hides what is missing
        shutil.copytree(ROOT / name, source / name, ignore=skipped)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, source, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def binaries(wheel):
    """The scripts of a fresh environment with our wheel; its dependencies are those of this one."""
    folder, target = wheel.parent, wheel.parent / "venv"
    venv.create(target)
    run(*PIP, "--python", target, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    (packages,) = target.glob("lib/*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return target / "bin"


def test_a_registry_takes_the_wheel(wheel):
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, cwd=wheel.parent)


def test_the_wheel_holds_what_is_no_code(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("LICENSE", "htmx.LICENSE"):
        assert [each for each in names if re.search(rf"dist-info/licenses/(.*/)?{name}$", each)]
    ours = ("reporting/assets", "reporting/templates", "server/pages")
    for file in (file for name in ours for file in sorted((ROOT / "hposvc").glob(f"{name}/**/*"))):
        if file.is_file() and file.suffix not in {".py", ".pyc"}:
            assert f"{file.relative_to(ROOT)}" in names
    assert {"hposvc/mcp/AGENTS.md", "hposvc/mcp/SKILL.md"} <= {*names}
    assert {f"{package}/py.typed" for package in PACKAGES} - {*names} == {"hydra_plugins/py.typed"}


def test_the_packages_come_from_the_wheel_with_their_data(binaries, tmp_path):
    code = "import hposvc, searchers, trainables, cluster as c; print(hposvc.__file__, c.__file__)"
    assert str(ROOT) not in run(binaries / "python", "-c", code, cwd=tmp_path)
    (packages,) = binaries.parent.glob("lib/*/site-packages")
    for name in PACKAGES:
        source = {file.relative_to(ROOT) for file in (ROOT / name).rglob("*.py")}
        there = {file.relative_to(packages) for file in (packages / name).rglob("*.py")}
        assert there == source
        assert list((packages / name).rglob("py.typed"))


def test_the_command_runs_a_sweep_in_an_empty_folder(binaries, tmp_path):
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "valley.py").write_text(CURVE)
    hposvc = binaries / "hposvc"
    assert "Usage: hposvc" in run(hposvc, "--help", cwd=tmp_path)
    # The words of its keys are those of an installed page.
    assert "The reported metric to optimise" in run(hposvc, "schema", cwd=tmp_path)
    for page in (ROOT / "docs").rglob("*.md"):
        shown = run(hposvc, "docs", page.stem, "--path", cwd=tmp_path).strip()
        assert Path(shown).is_relative_to(binaries.parent.resolve())
    assert run(hposvc, "docs", "scripts", cwd=tmp_path) == (ROOT / SCRIPTS).read_text()
    for_llms = run(hposvc, "docs", "--llms", cwd=tmp_path)
    assert all(f"{page.name}): For " in for_llms for page in (ROOT / "docs").rglob("*.md"))
    assert "lr" in run(hposvc, "validate", "spec.yaml", cwd=tmp_path)
    status = json.loads(run(hposvc, "run", "spec.yaml", "-o", "json", cwd=tmp_path))
    assert (status["state"], status["trials"]["total"]) == ("COMPLETED", 3)
