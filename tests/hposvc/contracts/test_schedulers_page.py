"""docs/how-to/schedulers.md: its specs run, and its pictures are what the command draws."""

import re
import subprocess
import sys
from pathlib import Path

import pages
import pytest
from invariants import check
from ruamel.yaml import YAML
from simulated_sweeps import Lab

from hposvc import spec as specs
from hposvc.spec.registry import SCHEDULERS

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGE = pages.read("how-to/schedulers.md")
BLOCKS = pages.blocks("how-to/schedulers.md", "yaml")
PICTURES = re.findall(r"\]\(\.\./(schedulers/.*?\.svg)\)", PAGE)
LARGEST = 150_000  # bytes of a picture
BASE = {
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {
        "lr": {"min": 1e-5, "max": 1e-1, "log": True},
        "dropout": {"min": 0.0, "max": 0.5},
    },
    "trials": {"max": 12, "parallel": 4},
    "search": "random",
    "engine": {"type": "simulate", "curve": "simulated_sweeps:smooth"},
}


def test_every_scheduler_has_its_place_on_the_page():
    named = {re.search(r"(?:type|scheduler): *(?:\{type: )?(\w+)", block)[1] for block in BLOCKS}
    assert named == set(SCHEDULERS.classes) - {"replay"}, "replay is what `export` writes"
    assert "`replay`" in PAGE


@pytest.mark.parametrize("block", BLOCKS)
def test_a_spec_of_the_page_runs_to_its_end(tmp_path, block):
    spec = specs.load({**BASE, **YAML(typ="safe").load(block)})
    lab = Lab.at(tmp_path)
    assert lab.run(spec).state == "COMPLETED"
    check(spec, lab.events())


def test_no_picture_is_missing_too_large_or_shown_nowhere():
    files = {f"schedulers/{file.name}": file for file in (DOCS / "schedulers").iterdir()}
    assert sorted(files) == sorted(PICTURES)
    for name, file in files.items():
        assert file.stat().st_size < LARGEST, name


@pytest.mark.full
def test_the_command_draws_them(tmp_path):
    """Draw a picture with pauses, stops and brackets, and another with copies."""
    command = [sys.executable, str(DOCS / "pictures.py"), "--folder", str(tmp_path)]
    ended = subprocess.run(
        [*command, "hyperband", "pbt"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    for name in ("hyperband", "pbt"):
        drawn = (tmp_path / f"{name}.svg").read_text()
        assert f">{name}: " in drawn
        assert drawn.count("<path") >= 20
