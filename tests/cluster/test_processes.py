import os
import signal
import subprocess
import sys
import time

import pytest
from waiting import until

from cluster.processes import end, family

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="setsid")
DEADLINE_S = 30.0


@pytest.fixture
def mark():
    """Yield a mark unique to this test, and kill processes that have it at the end."""
    mark = f"TEST_CLUSTER={os.getpid()}-{time.monotonic_ns()}"
    yield mark
    end(mark, 0.0, DEADLINE_S)


@pytest.fixture
def spawn(mark):
    """Start a shell with the mark, as the leader of a session."""
    started = []

    def spawn(script):
        name, _, value = mark.partition("=")
        shell = subprocess.Popen(
            ["sh", "-c", script],
            env={**os.environ, name: value},
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(shell)
        return shell

    yield spawn
    for shell in started:
        shell.kill()
        shell.wait()


def test_orphans_are_found_by_their_mark(spawn, mark):
    shell = spawn("setsid sleep 600 & sleep 600 & read word")
    shell.communicate()
    assert len(until(lambda: len(processes := family(mark)) == 2 and processes)) == 2
    assert not end(mark, 0.1, DEADLINE_S)
    assert not family(mark)


def test_children_that_lost_the_mark_are_found_by_their_parents(spawn, mark):
    spawn("env -i sleep 600 & wait")
    members = until(lambda: len(processes := family(mark)) == 2 and processes)
    assert not end(mark, 0.1, DEADLINE_S)
    assert not family(mark, members)


def test_who_does_not_end_when_asked_is_killed(spawn, mark):
    shell = spawn("trap '' TERM; while :; do sleep 0.1; done")
    until(lambda: len(family(mark)) == 2)  # the trap is set
    assert not end(mark, 0.3, DEADLINE_S)
    assert shell.wait() == -signal.SIGKILL


def test_the_topmost_are_asked_to_end_what_is_theirs(spawn, mark, tmp_path):
    shell = spawn(f"trap 'touch {tmp_path}/asked; exit 3' TERM; while :; do sleep 0.1; done")
    until(lambda: len(family(mark)) == 2)  # the trap is set
    assert not end(mark, DEADLINE_S, DEADLINE_S)
    assert shell.wait() == 3
    assert (tmp_path / "asked").exists()


def test_processes_with_another_mark_are_left_alone(spawn, mark):
    shell = spawn("read word")
    until(lambda: family(mark))
    for other in (f"{mark}0", mark[:-1], "NO_SUCH=MARK"):
        assert not family(other)
        assert not end(other, 0.1, 1.0)
    assert shell.poll() is None
