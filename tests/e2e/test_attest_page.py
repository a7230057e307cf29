"""docs/how-to/attest.md: its block runs as it stands there, and its codes are those of the verb."""

import os
import re
import subprocess
import sys

import pages
import pytest

from hposvc.errors import NOT_FOUND
from hposvc.verbs.attest import DIFFERS

(COMMANDS,) = pages.blocks("how-to/attest.md", "bash")


@pytest.mark.long
def test_the_block_runs_as_it_stands(tmp_path):
    shell = f'set -e\nhposvc() {{ {sys.executable} -m hposvc "$@"; }}\n'
    environment = {**os.environ, "HPOSVC_HOME": f"{tmp_path / 'home'}"}
    done = subprocess.run(
        ["bash", "-c", shell + COMMANDS],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"looks\.trials +4 +4 +ok", done.stdout)


def test_it_has_the_exit_codes():
    codes = re.findall(r"^\| (\d+) \|", pages.read("how-to/attest.md"), re.MULTILINE)
    assert [*map(int, codes)] == [0, NOT_FOUND, DIFFERS]
