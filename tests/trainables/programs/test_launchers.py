"""What a script says through torchrun. If these fail, torchrun's last words hide the script's."""

from textwrap import dedent

import pytest

from hposvc.events import error_line

LAUNCH = """
    import sys
    from torch.distributed.run import main
    main(["--nproc-per-node=2", {script!r}])
"""


@pytest.fixture
def under_torchrun(attempt, tmp_path):
    """Return a function that runs a script's text on two ranks of torchrun."""

    def run(text):
        script = tmp_path / "ranks.py"
        script.write_text("import os, signal\nrank = int(os.environ['RANK'])\n" + dedent(text))
        outcome, _ = attempt(LAUNCH.format(script=str(script)), until=1, launch="node")
        return outcome

    return run


@pytest.mark.long
def test_the_message_of_a_failure_is_the_rank_s_not_torchrun_s(under_torchrun):
    outcome = under_torchrun("if rank == 1: raise KeyError('width')\nsignal.pause()")
    assert outcome.kind == "user"
    assert error_line(outcome.message) == "KeyError: 'width'"


@pytest.mark.full
def test_a_rank_without_memory_ends_the_trial_as_a_script_without_memory_does(under_torchrun):
    outcome = under_torchrun("raise MemoryError('no room for the batch')")
    assert outcome.kind == "oom"


@pytest.mark.full
def test_a_rank_that_a_signal_ends_is_named(under_torchrun):
    outcome = under_torchrun("if rank == 0: os.kill(os.getpid(), signal.SIGKILL)\nsignal.pause()")
    assert error_line(outcome.message).endswith("rank 0 was ended by signal 9")
