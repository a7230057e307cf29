"""Causes for the end of a program."""

import sys
from pathlib import Path

import pytest

from hposvc.events import error_line
from trainables.programs.exit_causes import CommandFailed, CommandLost, failure


def test_a_full_disk_that_a_program_got_over_does_not_excuse_what_ended_it():
    got_over = "warning: No space left on device\nTraceback (most recent call last):\n"
    assert failure(1, f"{got_over}KeyError: 1", False, "", Path("/data/s")).kind == "user"


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        ("OSError: [Errno 5] Input/output error", CommandLost),
        ("cp: error writing '/data/s/checkpoints/x/w': Input/output error", CommandLost),
        ("OSError: [Errno 30] Read-only file system: '/data/s/checkpoints/x'", CommandLost),
        ("OSError: [Errno 30] Read-only file system: '/usr/x'", CommandFailed),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", CommandFailed),
    ],
)
def test_a_fault_of_storage_that_ended_a_program_is_not_the_user_s(last, kind):
    output = f"Traceback (most recent call last):\n  train()\n{last}"
    assert isinstance(failure(1, output, False, "python", Path("/data/s/checkpoints")), kind)


def test_a_module_that_is_missing_is_told_with_the_python_and_how_to_take_another(attempt):
    outcome, _ = attempt("import no_such", until=1)
    line = error_line(outcome.message)
    assert (
        f"No module named 'no_such' in {sys.executable}, the program's Python; install it there"
        in line
    )
    assert "give another Python's path" in line


def test_of_a_python_that_was_given_by_its_path_that_path_is_told():
    tail = "/opt/python3.9: No module named hydra"
    message = str(failure(1, tail, among_peers=False, program="/opt/python3.9", folder=Path()))
    assert (
        "No module named hydra in /opt/python3.9, the program's Python; install it there"
        in error_line(message)
    )


@pytest.mark.full
@pytest.mark.parametrize("read", ["os.environ['LOCAL_RANK']", "dist.init_process_group('gloo')"])
def test_a_script_for_torchrun_that_python_starts_is_told_how_to_be_started(attempt, read):
    outcome, _ = attempt(f"import os, torch.distributed as dist\n{read}", until=1)
    assert outcome.kind == "user"
    assert "write command: [torchrun, ...] and launch: node" in error_line(outcome.message)


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (
            "Could not override 'lr'.\nKey 'lr' is not in struct\n    full_key: lr\n"
            "    object_type=dict\n\nSet the environment variable HYDRA_FULL_ERROR=1 for",
            "Key 'lr' is not in struct | full_key: lr | object_type=dict",
        ),
        (
            "usage: t.py [-h]\nt.py: error: no such flag\n",
            "usage: t.py [-h] | t.py: error: no such",
        ),
        (
            "Traceback (most recent call last):\n  x\nE: one\nlate.py:3: UserWarning: y\n",
            "; E: one",
        ),
        ("only\n", "; its last line: only"),
    ],
)
def test_a_failure_is_named_by_the_line_that_raises_or_the_last_lines(output, line):
    said = error_line(f"{failure(3, output, False, 'python', Path())}")
    assert said.startswith("the command ended with exit status 3; ")
    assert line in said
    assert "HYDRA_FULL_ERROR" not in said


def test_an_error_is_not_hidden_by_what_is_printed_as_the_program_exits(attempt):
    script = """
        import atexit, sys
        atexit.register(lambda: [print("wandb: ", n, file=sys.stderr) for n in range(30)])
        def train():
            raise ValueError("no luck")
        train()
    """
    outcome, _ = attempt(script)
    assert error_line(outcome.message) == "ValueError: no luck"
    assert "in train" in outcome.message
