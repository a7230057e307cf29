"""What README.md shows can be done as it stands there."""

import re
import shlex
from pathlib import Path

import pytest

from cluster import local
from hposvc import api

pytestmark = [pytest.mark.ray, pytest.mark.long]

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = FENCE.findall((ROOT / "README.md").read_text())
INSTALLS = {"make", "."}  # words of commands that tests/e2e/test_wheel.py does in its own way


def blocks(language):
    return [text for word, text in BLOCKS if word == language]


@pytest.fixture
def folder(tmp_path):
    """A working directory with the examples, as a clone is."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def test_no_block_is_in_a_language_that_nobody_runs():
    assert {word for word, _ in BLOCKS} == {"bash", "python", "yaml"}


@pytest.mark.timeout(1800)  # three minutes alone on two cores; each command has its own deadline
def test_commands_run_one_after_the_other(python, home, folder, request):
    request.addfinalizer(lambda: local.down(home))  # where a command fails before the page's own
    lines = "".join(blocks("bash")).splitlines()
    for command, *arguments in (shlex.split(line, comments=True) for line in lines if line):
        if command in INSTALLS:
            continue
        assert command == "hposvc"
        ended = python("-m", "hposvc", *arguments, cwd=folder)
        assert ended.stdout or ended.stderr, arguments
        if arguments[0] == "run":
            status = api.load(api.Sweeps.open(home), "last").status()
            assert (status.state, status.trials.failed) == ("COMPLETED", 0), arguments


@pytest.mark.parametrize("text", blocks("yaml"))
def test_a_spec_is_valid(python, folder, text):
    (folder / "spec.yaml").write_text(text)
    python("-m", "hposvc", "validate", "spec.yaml", cwd=folder)


@pytest.mark.parametrize("text", blocks("python"))
def test_a_program_runs(python, folder, text):
    (folder / "program.py").write_text(text)
    assert python("program.py", cwd=folder).stdout
