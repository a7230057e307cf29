import os
import pty
import subprocess
import sys

import pytest


@pytest.mark.parametrize("answer", ["n", "y"])
def test_a_sweep_is_removed_at_a_terminal_only_when_its_user_says_so(hposvc, spec, answer):
    hposvc("run", spec(), "--id", "mine")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "hposvc", "rm", "last"]
    with subprocess.Popen(command, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE) as process:
        os.close(theirs)
        asked = b""
        while b"[y/N]" not in asked:
            asked += os.read(ours, 1000)
        assert b"remove mine, with its checkpoints and logs?" in asked
        os.write(ours, f"{answer}\n".encode())
        out = process.stdout.read().decode()
        assert process.wait(60) == (0 if answer == "y" else 130)
    os.close(ours)
    assert ("mine is removed" in out) is (answer == "y")
    assert len(hposvc("ls", "-o", "json").data) == (answer == "n")
