"""What keeps an eye on a rank, in a process of its own. If these fail, it does harm by itself."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainables import Worker
from trainables.slots.pulse import Signs

ROOT = Path(__file__).parents[3]
FORKS = """
import os, sys
from trainables.slots.pulse import Pulse, Signs
heard = []
pulse = Pulse(60.0, heard.append, works=True)
with pulse.during(1, Signs()):
    for _ in range(2):
        if os.fork() == 0:
            sys.exit(3)  # takes the interpreter down
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 3
print("both ended")
"""
HANGS = """
import sys, threading
from trainables.slots.pulse import Pulse, Signs
pulse = Pulse(1.0, lambda order: print(order, flush=True), works=True)
with pulse.during(7, Signs()):
    threading.Event().wait(3.0)
    print("and on", flush=True)
    threading.Event().wait(3.0)
"""
LIVES = """
import os, sys, time
from trainables.slots.pulse import Pulse, Signs
pulse = Pulse(1.0, lambda order: print(order, flush=True), works=True)
signs = Signs()
with pulse.during(7, signs):
    for _ in range(30):
        time.sleep(0.1)
        print("at work", file=sys.stderr, flush=True) if "prints" in sys.argv else signs.beat()
"""


def run(text, log, *arguments):
    """What a process prints; its standard error goes to a file, as a rank's does."""
    command = [sys.executable, "-c", text, *arguments]
    with log.open("w") as stream:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=stream, text=True, timeout=60
        )
    assert done.returncode == 0, log.read_text()
    return done.stdout


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


def test_a_forked_child_ends(log):
    """One whose parent is to have its stacks written would wait for that thread at its end."""
    assert run(FORKS, log) == "both ended\n"


def test_stacks_are_written_once_and_are_no_sign_of_life(log):
    """They go where output does, which is one."""
    told, _, later = run(HANGS, log).partition("and on\n")
    assert (set(told.split()), later) == ({"7"}, "")
    assert log.read_text().count("Timeout (0:00:01)!") == 1


@pytest.mark.parametrize("how", ["prints", "beats"])
def test_one_that_prints_or_beats_is_at_work(log, how):
    assert len(run(LIVES, log, how).split()) >= 5
    assert "Timeout" not in log.read_text()


def test_a_beat_costs_less_than_a_microsecond():
    worker = Worker.alone()
    worker.link = Speaker()
    best = min(timed(worker.beat) for _ in range(5))
    assert best < 1e-6


class Speaker:
    """As a rank's link has it."""

    def __init__(self):
        self.signs = Signs()

    def beat(self):
        self.signs.beat()


def timed(beat, calls=10_000):
    began = time.perf_counter()
    for _ in range(calls):
        beat()
    return (time.perf_counter() - began) / calls
