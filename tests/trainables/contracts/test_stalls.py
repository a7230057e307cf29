"""Real ranks that hang, or only seem to. If these fail, a sweep waits for ever, or kills work.

A stall is of two seconds here, of ten minutes by default.
"""

import pytest
from two_ranks import started
from waiting import until

from trainables.programs.command import Command
from trainables.runtime.coordinator import UNEQUAL
from trainables.storage.checkpoint import Saved
from trainables.training import Training

ALONE = {"world_size": 1, "training": Training("single")}
CASES = """
import ctypes, subprocess, sys, threading, time

def alone(params, worker):
    if params["case"] == "keeps the lock":
        ctypes.PyDLL(None).sleep(600)  # here: Python's lock is not let go
    worker.beat()
    while True: pass  # here: as if for a GPU

def together(params, worker):
    import torch, torch.distributed as dist

    case, rank = params["case"], worker.rank
    if case == "raises" and rank == 1:
        raise ValueError("the batch of rank 1 is empty")
    if case == "waits for ever" and rank == 1:
        threading.Event().wait()  # here: rank 1
    if case == "works" and rank == 1:
        work(5)
    if case == "its child works" and rank == 0:
        subprocess.run([sys.executable, __file__], check=True)
    if case == "keeps":
        for update in (1, 2):
            worker.keep(2, worker.scratch(), within=update)
    dist.all_reduce(torch.ones(1))  # here: rank 0
    worker.report(3, {"loss": 1.0})

def work(seconds):
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        pass

if __name__ == "__main__":
    work(5)
"""

SCRIPT = """
import sys, time
ends = time.monotonic() + 5
while time.monotonic() < ends and sys.argv[1] == "works":
    pass
time.sleep(600 if sys.argv[1] == "sleeps" else 0)
print("loss=1")
"""


def slot(folder, function, **fields):
    (folder / "mine.py").write_text(CASES)
    name = f"{folder / 'mine.py'}:{function}"
    return started(folder, trainable=name, stall_s=2.0, **fields)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    with slot(tmp_path_factory.mktemp("two"), "together") as two:
        yield two


def stands(place):
    """Return how a stack shows that a rank is at this line."""
    lines = enumerate(CASES.splitlines(), 1)
    return next(f'mine.py", line {number} in ' for number, line in lines if place in line)


@pytest.mark.long
def test_ranks_that_wait_for_each_other_end_the_order_and_leave_their_stacks(tmp_path):
    with slot(tmp_path, "together") as two:
        reports, end = two.order({"case": "waits for ever"})
        assert (reports, end.kind, end.clean) == ([], "stalled", False)
        assert end.message == (
            "no sign of life from ranks 0 and 1 for 2 s (failure.stall); "
            "the stacks of all threads end logs/t0001/1-0.log and logs/t0001/1-1.log" + UNEQUAL
        )
        for rank in range(2):
            assert stands(f"# here: rank {rank}") in two.log(rank)
        last = "by torch's flight recorder:\n  1 gloo:all_reduce [[1]] in default_pg: scheduled"
        until(lambda: last in two.log(0))  # the filter of the log may write it a moment later


@pytest.mark.full
@pytest.mark.parametrize(
    ("case", "place"),
    [("keeps the lock", "# here: Python's"), ("beats, then no more", "# here: as")],
)
def test_a_hang_is_told_from_work_where_that_is_hard(tmp_path, case, place):
    """C code that holds the GIL; a processor kept busy by waiting for a GPU."""
    with slot(tmp_path, "alone", **ALONE) as single:
        _, end = single.order({"case": case})
        assert (end.kind, end.clean) == ("stalled", False)
        assert stands(place) in single.log(0)


@pytest.mark.full
def test_a_command_is_judged_by_its_program_alone(tmp_path):
    """The rank's own process polls the program many times a second."""
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    command = Command(("python", str(file), "${case}"), "rank", "loss=(?P<loss>.+)", 5.0)
    with slot(tmp_path, "none", command=command, **ALONE) as single:
        _, end = single.order({"case": "works"}, until=1)
        assert (end.kind, end.clean) == ("ended", True)
        _, end = single.order({"case": "sleeps"}, until=1)
        assert (end.kind, end.clean) == ("stalled", False)


@pytest.mark.full
def test_ranks_of_which_one_works_without_a_word_do_not_hang(two):
    for case in ("works", "its child works"):
        reports, end = two.order({"case": case})
        assert (end.kind, end.clean) == ("ended", True), case
        assert [report.step for report in reports] == [3]


def test_a_checkpoint_that_no_report_brings_is_of_rank_0(two):
    reports, end = two.order({"case": "keeps"}, start=Saved(2, "", "", 0))
    assert (end.kind, len(reports)) == ("ended", 1)
    assert [kept.saved.position for kept in two.kept] == [(2, 1), (2, 2)]
