"""The end of programs. If these fail, a stopped trial goes on, and blocks the next one."""

import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest
from waiting import until

from trainables.storage.checkpoint import Saved
from trainables.worker import LocalLink

WAIT_S = 60
LOSS = r"loss=(?P<loss>\S+)"


FAMILY = """
    import os, signal, subprocess, sys, time
    {first}
    child = "import signal, time; {ignore}; open(r'{mark}' + sys.argv[1], 'w'); time.sleep(600)"
    child = "import sys; " + child
    subprocess.Popen([sys.executable, "-c", child, "child"])
    subprocess.Popen([sys.executable, "-c", child, "stranger"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", child, "daemon"])
        os._exit(0)
    while sum(os.path.exists(r"{mark}" + each) for each in ("child", "stranger", "daemon")) < 3:
        time.sleep(0.01)
    {last}
"""
IGNORE = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def family(tmp_path, first="", last="", ignore="pass"):
    return FAMILY.format(mark=f"{tmp_path}/mark-", first=first, last=last, ignore=ignore)


def left(tmp_path):
    """Return the processes of the family that are still alive."""
    mine = []
    for process in psutil.process_iter():
        try:
            if str(tmp_path) in " ".join(process.cmdline()) and process.status() != "zombie":
                mine.append(process)
        except psutil.NoSuchProcess:
            continue
    return mine


def test_an_end_leaves_no_child_grandchild_or_daemon(attempt, tmp_path):
    outcome, _ = attempt(family(tmp_path, last="import hposvc; hposvc.report({'loss': 1})"))
    assert (outcome.kind, outcome.leaks) == ("ended", ())
    assert not left(tmp_path)


def test_a_stop_is_sigterm_then_after_the_grace_sigkill_to_all(attempt, tmp_path):
    last = "print('loss=1', flush=True); time.sleep(600)"
    script = family(tmp_path, first=IGNORE, last=last, ignore=IGNORE)
    began = time.monotonic()
    outcome, _ = attempt(script, collect=LOSS, until=9, link=LocalLink(stop_at=1), grace=1.0)
    assert outcome.kind == "ended"
    assert time.monotonic() - began < WAIT_S
    assert not left(tmp_path)


def test_a_stop_lets_the_script_tidy_up(attempt, tmp_path):
    script = f"""
        import signal, sys, time
        def leave(*_):
            open({str(tmp_path / "tidied")!r}, "w")
            sys.exit(1)
        signal.signal(signal.SIGTERM, leave)
        print("loss=1")
        time.sleep(600)
    """
    outcome, _ = attempt(script, collect=LOSS, until=9, link=LocalLink(stop_at=1))
    assert outcome.kind == "ended"
    assert (tmp_path / "tidied").exists()


def test_nothing_outlives_a_rank_that_is_killed(tmp_path):
    """No handler runs on SIGKILL, and the killer may kill the rank's direct children as well."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(family(tmp_path, last="time.sleep(600)", ignore=IGNORE)))
    code = f"""
from pathlib import Path
from trainables.order import Order
from trainables.runtime.assignment import Assignment, SlotConfig, carry_out
from trainables.programs.command import Command
from trainables.training import Training
from trainables.worker import LocalLink
place = SlotConfig("", Training(), ("loss",), 1, 1, 0, Path({str(tmp_path)!r}),
              command=Command(("python", {str(script)!r}, "x"), "rank", None, 60.0))
carry_out(place, Assignment(Order(1, "t0001", {{}}, None, 1, 1, ())), 0, LocalLink())
"""
    rank = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[3])
    try:
        until(lambda: len(list(tmp_path.glob("mark-*"))) == 3)
    finally:
        for child in psutil.Process(rank.pid).children():
            child.kill()
        rank.kill()
        rank.wait()
    until(lambda: not left(tmp_path))


def test_a_damaged_start_leaves_no_thread_and_no_folder(attempt, tmp_path):
    """The order is tried again and again; each try would hold a port."""
    gone = Saved(1, str(tmp_path / "gone"), "0" * 64, 1)
    outcome, _ = attempt("pass", first=2, until=2, start=gone)
    assert outcome.kind == "damaged"
    until(lambda: all(thread.name != "inbox" for thread in threading.enumerate()))
    assert not list((tmp_path / "s").rglob("*-given"))


@pytest.mark.parametrize(
    "script",
    [
        "import torch; raise torch.OutOfMemoryError('CUDA out of memory')",
        "import torch; torch.empty(10**15)",
        "import numpy; numpy.empty(10**15)",
        "print('jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory'); exit(1)",
        'import os; print("what(): std::bad_alloc", flush=True); os.abort()',
    ],
)
def test_a_script_that_runs_out_of_memory_is_told_apart(attempt, script):
    """The program would run out of memory again if it were tried again."""
    outcome, _ = attempt(script)
    assert (outcome.kind, attempt("raise ValueError('bad batch')")[0].kind) == ("oom", "user")


def test_a_script_that_went_on_after_it_ran_out_of_memory_failed_of_something_else(attempt):
    """A search for the batch that fits is no reason to give up the retries."""
    script = "print('out of memory at batch 512, going on with 256')\nraise KeyError('x')"
    assert attempt(script)[0].kind == "user"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_program_that_finds_a_disk_full_is_not_to_blame(attempt):
    """Blamed for it, the trial would be given up, and so would the next one."""
    outcome, _ = attempt("open('/dev/full', 'w').write('1' * 2**16)")
    assert outcome.kind == "storage"
    assert "No space left on device" in outcome.message
