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
SKIPPED = {  # the first word of a command: why it is not run here
    "make": "`make test-long` runs this test, and the other targets install; `server` serves",
    "pip": "tests/e2e/test_wheel.py installs",
    "curl": "tests of docs/reference/api.md run curl",
}
SERVER = "http://127.0.0.1:8900"  # as the page has it; the tests' own is elsewhere


def blocks(language):
    return [text for word, text in BLOCKS if word == language]


def test_no_block_is_in_a_language_that_nobody_runs():
    assert {word for word, _ in BLOCKS} == {"bash", "python", "yaml"}


@pytest.mark.timeout(1800)  # three minutes alone on two cores; each command has its own deadline
def test_commands_run_one_after_the_other(python, home, request):
    request.addfinalizer(lambda: local.down(home))  # where a command fails before the page's own
    for text in blocks("bash"):
        if SERVER in text:  # from here on; before, a cluster of the page serves the home
            text = text.replace(SERVER, request.getfixturevalue("server"))
        variables = {}
        for command, *arguments in filter(None, map(split, text.split("\n"))):
            if command == "export":
                variables |= [argument.split("=") for argument in arguments]
            elif command not in SKIPPED:
                assert Path(command).name == "hposvc"
                run_command(python, home, arguments, variables)


def split(line):
    return shlex.split(line, comments=True)


def run_command(python, home, arguments, variables):
    ended = python("-m", "hposvc", *arguments, variables=variables)
    assert ended.stdout or arguments[0] == "logs", arguments
    if arguments[0] == "run":
        status = api.load(api.Sweeps.open(home), "last").status()
        assert (status["state"], status["trials"]["failed"]) == ("COMPLETED", 0), arguments


@pytest.mark.parametrize("text", blocks("yaml"))
def test_a_spec_is_valid(python, tmp_path, text):
    (tmp_path / "spec.yaml").write_text(text)
    python("-m", "hposvc", "validate", str(tmp_path / "spec.yaml"))


@pytest.mark.parametrize("text", blocks("python"))
def test_a_program_runs(python, tmp_path, text, server):
    (tmp_path / "program.py").write_text(text.replace(SERVER, server))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert python("program.py", cwd=tmp_path).stdout
