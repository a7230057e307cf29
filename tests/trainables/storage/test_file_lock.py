"""A lock between processes. If these fail, two processes make MLflow's tables at once."""

import fcntl
import subprocess
import sys

import pytest

from trainables.storage.file_lock import locked

HOLDS = """
import sys
from pathlib import Path
from trainables.storage.file_lock import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.readline()
"""


def hold(path):
    """Start a process that holds the lock until its stdin closes."""
    command = [sys.executable, "-c", HOLDS, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes)


def test_while_a_process_has_it_no_other_gets_it(tmp_path):
    path = tmp_path / "folder" / "lock"
    other = hold(path)
    assert other.stdout.readline() == "locked\n"
    with path.open("w") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    other.communicate("\n")
    with locked(path), path.open("w") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_process_that_dies_lets_go(tmp_path):
    path = tmp_path / "lock"
    other = hold(path)
    assert other.stdout.readline() == "locked\n"
    other.kill()
    with locked(path):
        assert other.wait(20) != 0
    other.communicate()
