"""The pages beside other tools: their files are what benchmarks/beside.py runs, and its figures."""

import re
import subprocess
import sys
from pathlib import Path

import pages
import pytest

from hposvc import spec as specs
from hposvc.spec.parsing.document import read_text

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "explanation" / "beside"
NAMES = [file.stem for file in sorted(FOLDER.glob("*.md"))]
RESULTS = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
FIGURES = re.compile(r"^\|  \| lines \|.*\n(?:\|.*\n)+", re.MULTILINE)
TITLE = re.compile(r"(?:\"\"\"|# )\w+\.(?:py|yaml|toml)(?:\"\"\")?\n")


def fenced(name):
    return pages.fenced(pages.read(f"explanation/beside/{name}.md"))


@pytest.mark.parametrize("name", NAMES)
def test_each_file_has_its_name_and_can_be_read(name):
    files = [(language, text) for language, text in fenced(name) if language != "bash"]
    assert len(files) > 1
    for language, text in files:
        assert TITLE.match(text), text
        if language == "python":
            compile(text, name, "exec")
        elif "sweep.yaml" in text:
            assert specs.load(read_text(text, "sweep.yaml")).trials.max


@pytest.mark.parametrize("name", NAMES)
def test_figures_of_a_page_are_those_of_the_results(name):
    text = pages.read(f"explanation/beside/{name}.md")
    figures = FIGURES.findall(text)
    assert bool(figures) != ("**Not measured:**" in text)
    assert all(table in RESULTS for table in figures)


def test_the_sweep_of_wandb_becomes_the_spec_of_its_page(tmp_path):
    files = {text.splitlines()[0]: text for language, text in fenced("wandb-sweeps")}
    (tmp_path / "wandb.yaml").write_text(files["# wandb.yaml"])
    done = subprocess.run(
        [sys.executable, "-m", "hposvc", "import", str(tmp_path / "wandb.yaml")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == files["# sweep.yaml"].removeprefix("# sweep.yaml\n")
