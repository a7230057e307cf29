"""What follows from the death of a rank's process: by its log, its exit code, and Ray's word."""

import pytest

from hposvc.backends.rank_deaths import RankDeaths, RankExit
from hposvc.events import error_line
from trainables.order import Order
from trainables.runtime.assignment import Outcome, log_file

ORDER = Order(7, "t0003", {"x": 0.5}, None, 1, 3)


def end(folder, log, left=None, has_reported=False, deaths=None):
    """Return the outcome when a rank dies with this log; None: it is not here."""
    left = left or RankExit(0, 1, "a process of the slot died")
    if log is not None:
        file = log_file(folder, ORDER.trial, ORDER.id, left.rank)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(log)
    return (deaths or RankDeaths(folder)).outcome(ORDER, left, has_reported)


def test_a_process_that_ends_itself_with_a_status_has_crashed(tmp_path):
    failed = end(tmp_path, "loss 1\n\n[hposvc] exit status 3: it called os._exit\n")
    assert (failed.kind, failed.crashed) == ("infra", True)
    assert error_line(failed.message) == "exit status 3: it called os._exit; its last line: loss 1"


def test_status_0_is_a_return_once_there_was_a_report(tmp_path):
    log = "[hposvc] exit status 0: it called os._exit\n"
    assert end(tmp_path, log, has_reported=True) == Outcome(7, "ended", how="returned")
    assert end(tmp_path, log).kind == "infra"
    assert end(tmp_path, log, RankExit(1, 2, "gone"), has_reported=True).kind == "infra"


@pytest.mark.parametrize(
    ("code", "how", "crashed"),
    [
        (-9, "killed by SIGKILL", False),
        (-11, "killed by SIGSEGV", True),
        (5, "exit status 5", True),
    ],
)
def test_an_exit_code_says_more_than_a_log_without_a_last_word(tmp_path, code, how, crashed):
    failed = end(tmp_path, "loss 1\n", RankExit(1, 2, "gone", code))
    assert error_line(failed.message) == f"rank 1 of 2: {how}; its last line: loss 1"
    assert failed.crashed == crashed


def test_more_than_its_own_memory_is_the_trials_fault_at_once(tmp_path):
    failed = end(tmp_path, "[hposvc] killed: it used 2 GiB, and memory_per_worker is 1 GiB\n")
    assert (failed.kind, failed.crashed) == ("oom", False)
    assert error_line(failed.message) == "killed: it used 2 GiB, and memory_per_worker is 1 GiB"


def test_a_node_without_memory_is_the_trials_fault_the_second_time(tmp_path):
    deaths = RankDeaths(tmp_path)
    log = "[hposvc] memory runs out: it uses 11 GiB of the node's 24 GiB\n"
    first, second = (end(tmp_path, log, deaths=deaths) for _ in range(2))
    assert (first.kind, second.kind) == ("infra", "oom")
    assert error_line(first.message) == (
        "killed because memory ran out: it uses 11 GiB of the node's 24 GiB"
    )
    left = RankExit(0, 1, "gone", low_memory="23.1GB of the node's 24.0GB were in use")
    told = end(tmp_path, "loss 1\n", left)
    assert "23.1GB of the node's 24.0GB were in use" in error_line(told.message)
