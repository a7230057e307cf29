"""A rank's output in a file of its order."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainables.runtime.assignment import (
    log_file,
)
from trainables.runtime.output import redirect_output

needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")


@needs_full
def test_a_rank_lives_though_there_is_no_room_for_its_log(capfd):
    """A rank that dies of it could not say what was wrong, and would cost a retry."""
    with redirect_output(Path("/dev/full")):
        sys.stdout.write("lost")  # waits in a buffer, which there is no room to empty
    sys.stdout.write("seen\n")
    sys.stdout.flush()
    assert capfd.readouterr().out.endswith("seen\n")


def test_output_of_child_processes_is_captured_too(tmp_path):
    file = log_file(tmp_path, "t0001", 2, 0)
    with redirect_output(file):
        subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    assert file.read_text() == "from a child\n"
