"""The heartbeat of a rank, in a process of its own. If these fail, the heartbeat does harm."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FORKS = """
import os, sys
from trainables.runtime.heartbeat import Heartbeat, LivenessSignals
heard = []
pulse = Heartbeat(60.0, heard.append, works=True)
with pulse.during(1, LivenessSignals()):
    for _ in range(2):
        if os.fork() == 0:
            sys.exit(3)  # takes the interpreter down
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 3
print("both ended")
"""
HANGS = """
import sys, threading
from trainables.runtime.heartbeat import Heartbeat, LivenessSignals
pulse = Heartbeat(1.0, lambda order: print(order, flush=True), works=True)
with pulse.during(7, LivenessSignals()):
    threading.Event().wait(3.0)
    print("and on", flush=True)
    threading.Event().wait(3.0)
"""
WATCHED = """
import sys, threading
from trainables.runtime.heartbeat import Heartbeat, LivenessSignals

def watch():
    while True:
        pass

watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
watchers = [watcher] if "as watcher" in sys.argv else []
pulse = Heartbeat(1.0, lambda order: None, True, watchers)
with pulse.during(7, LivenessSignals()):
    threading.Event().wait(3.0)
"""
LIVES = """
import os, sys, time
from trainables.runtime.heartbeat import Heartbeat, LivenessSignals
serves = "serves" in sys.argv  # it beats until its server is ready, and prints from then on
pulse = Heartbeat(1.0, lambda order: print(order, flush=True), works=not serves)
signs = LivenessSignals()
if serves:
    signs.beat()
with pulse.during(7, signs):
    for _ in range(30):
        time.sleep(0.1)
        signs.beat() if "beats" in sys.argv else print("at work", file=sys.stderr, flush=True)
"""
FILTERED = """
import os, sys, time
from pathlib import Path
from trainables.runtime.output import redirect_output
from trainables.runtime.heartbeat import Heartbeat, LivenessSignals
told, signs = os.dup(1), LivenessSignals()
pulse = Heartbeat(1.0, lambda order: os.write(told, b"7 "), works=False)
with redirect_output(Path(sys.argv[1]), ["hunter22"]) as file, pulse.during(7, signs, file):
    for _ in range(30):
        time.sleep(0.1)
        print("hunter22 at work", file=sys.stderr, flush=True)
"""


def run(text, log, *arguments):
    """Return a process's output; its standard error goes to a file, as a rank's does."""
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
    """A fork of a process with a pending stack dump would wait for faulthandler's thread."""
    assert run(FORKS, log) == "both ended\n"


@pytest.mark.long
def test_stacks_are_written_once_and_are_no_sign_of_life(log):
    """Stacks go where output goes, and output is a sign of life."""
    orders, _, later = run(HANGS, log).partition("and on\n")
    assert (set(orders.split()), later) == ({"7"}, "")
    assert log.read_text().count("Timeout (0:00:01)!") == 1


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="there is nobody to watch memory")
@pytest.mark.parametrize(("who", "stacks"), [("as watcher", True), ("as trainable", False)])
def test_the_work_of_watching_a_process_is_no_sign_of_life(log, who, stacks):
    """Finding the children reads all of /proc each second: on a full node, more than BUSY.

    The clocks of a process and of its threads are read one after the other, so that a thread that
    never rests may look like work once, and the stacks come twice.
    """
    run(WATCHED, log, who)
    assert ("Timeout (0:00:01)!" in log.read_text()) is stacks


@pytest.mark.parametrize("how", ["prints", "beats", "serves"])
def test_one_that_prints_or_beats_is_at_work(log, how):
    assert len(run(LIVES, log, how).split()) >= 5
    assert "Timeout" not in log.read_text()


@pytest.mark.full
def test_a_rank_is_watched_where_nobody_counts_what_it_reads(log):
    """As on macOS, where psutil has no io_counters."""
    text = f"import psutil\ndel psutil.Process.io_counters\n{LIVES}"
    assert len(run(text, log, "beats").split()) >= 5
    assert "Timeout" not in log.read_text()


def test_what_prints_is_at_work_though_its_output_goes_through_a_filter(tmp_path, log):
    assert len(run(FILTERED, log, str(tmp_path / "filtered.log")).split()) >= 5
    assert "[secret] at work" in (tmp_path / "filtered.log").read_text()
