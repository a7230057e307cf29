"""The pages of docs/how-to/recipes as people copy them. If this fails, they copied what breaks."""

import re
import runpy
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pages
import pytest

from hposvc import spec as specs
from trainables import Worker, load
from trainables.memory_estimation.forecast import adapted_to_ranks
from trainables.stop_signals import StopTrial

ROOT = Path(__file__).parents[3]
PAGES = sorted((pages.DOCS / "how-to" / "recipes").glob("*.md"))
NAMED = re.compile(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LONGEST = 110  # lines of a page
SLOW = ("large", "trl")  # they train models of transformers

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def write_files(page: Path, folder: Path) -> None:
    """Write the files that a page names into an empty folder."""
    for name, text in NAMED.findall(page.read_text(encoding="utf-8")):
        (folder / name).write_text(text)


@pytest.fixture
def user(page, tmp_path, monkeypatch):
    """Write the files of a page, and work beside them; forget their modules afterwards."""
    write_files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before & {file.stem for file in tmp_path.glob("*.py")}:
        del sys.modules[name]


def commands(page: Path) -> list[list[str]]:
    bash = [text for word, text in pages.fenced(page.read_text(encoding="utf-8")) if word == "bash"]
    return [line.split() for text in bash for line in text.splitlines()]


@every_page
def test_a_page_has_named_files_and_commands_on_them(page):
    text = page.read_text(encoding="utf-8")
    named = dict(NAMED.findall(text))
    assert len(pages.fenced(text)) == len(named) + 1  # and the commands
    used = {word for command in commands(page) for word in command} & named.keys()
    specs_used = {name for name in named if name.endswith(".yaml")}
    assert specs_used
    assert specs_used <= used
    assert {command[0] for command in commands(page)} <= {"hposvc", "python"}
    assert "\nWhat to look at" in text
    assert len(text.splitlines()) <= LONGEST


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.long] * (page.stem in SLOW)) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_specs_are_valid_and_train(page, user):
    for program in (command[1] for command in commands(page) if command[0] == "python"):
        runpy.run_path(program, run_name="__main__")
    for file in sorted(user.glob("*.yaml")):
        spec = specs.load(file)
        if spec.serve is None or shutil.which(spec.serve.command[0]):
            specs.check(file, {})
        if not spec.resources.gpus_per_worker:
            train(spec)


def train(spec: specs.SweepSpec) -> None:
    """Train a spec's middle configuration for a step on one rank, and check its report."""
    params = spec.space.decode(np.full(len(spec.space.searched), 0.5))
    training = adapted_to_ranks(load.training_of(spec.training, params), 1)
    training = replace(training, compile="none")  # compiling takes a minute
    worker = Worker.alone(params, training=training, unit=spec.fidelity.unit)
    worker.metrics = tuple(metric.name for metric in spec.metrics)
    with suppress(StopTrial):  # a function would go on
        load.bind(load.resolve(spec.trainable), params)(worker)
    assert worker.reports[0].metrics.keys() >= {*worker.metrics}
    assert np.isfinite([worker.reports[0].metrics[name] for name in worker.metrics]).all()


def test_programs_are_as_ruff_writes_them(tmp_path):
    for page in PAGES:
        # Beside a folder `trl`, ruff would sort the package trl as the user's own.
        folder = tmp_path / f"recipe_{page.stem}"
        folder.mkdir()
        write_files(page, folder)
    ruff = [sys.executable, "-m", "ruff"]
    config = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    for command in (["check", "--ignore", "T20"], ["format", "--diff"]):
        ended = subprocess.run([*ruff, *command, *config, "."], cwd=tmp_path, capture_output=True)
        assert ended.returncode == 0, (ended.stdout + ended.stderr).decode()


def test_the_load_of_a_server_is_that_of_the_examples():
    (page,) = (page for page in PAGES if page.stem == "llm-server")
    named = dict(NAMED.findall(page.read_text(encoding="utf-8")))
    assert named["llm_load.py"] == (ROOT / "examples" / "serving" / "llm_load.py").read_text()
