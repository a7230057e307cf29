"""`make serve`, with hposvc of the working tree in place of an installed one."""

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_make_serve_submits_nothing_to_another_server_on_its_port(tmp_path):
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    for target in ("bin/python", ".dependencies", ".installed"):  # in this order: each is newer
        (venv / target).touch()
    (venv / "bin/hposvc").write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m hposvc "$@"\n'
    )
    (venv / "bin/hposvc").chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as other:
        target = f"PORT={other.getsockname()[1]}"
        # The output ends once the target's subshell, too, has ended.
        ended = subprocess.run(
            [
                "make",
                "--no-print-directory",
                "serve",
                f"VENV={venv}",
                target,
                f"HPOSVC_HOME={tmp_path / 'home'}",
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()
    assert ended.returncode == 2
    assert "can't be listened on: Address already in use" in ended.stderr
    assert ended.stdout == ""
