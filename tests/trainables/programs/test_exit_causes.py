"""Causes for the end of a program."""

import pytest

from hposvc.events import error_line
from trainables.programs.exit_causes import failure


def test_a_full_disk_that_a_program_got_over_does_not_excuse_what_ended_it():
    got_over = "warning: No space left on device\nTraceback (most recent call last):\n"
    assert failure(1, f"{got_over}KeyError: 1", among_peers=False).kind == "user"


@pytest.mark.full
@pytest.mark.parametrize("read", ["os.environ['LOCAL_RANK']", "dist.init_process_group('gloo')"])
def test_a_script_for_torchrun_that_python_starts_is_told_how_to_be_started(attempt, read):
    outcome, _ = attempt(f"import os, torch.distributed as dist\n{read}", until=1)
    assert outcome.kind == "user"
    assert "write command: [torchrun, ...] and launch: node" in error_line(outcome.message)
