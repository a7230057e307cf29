import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from waiting import until

from cluster.processes import Process, end, family

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
DEADLINE_S = 30.0


@pytest.fixture
def mark():
    """Yield a mark unique to this test, and kill processes that have it at the end."""
    mark = f"TEST_CLUSTER={os.getpid()}-{time.monotonic_ns()}"
    yield mark
    end([], mark, 0.0, DEADLINE_S)


@pytest.fixture
def spawn(mark):
    """Start a shell with the mark, as the leader of a session."""
    started = []

    def spawn(script, marked=True):
        name, _, value = mark.partition("=")
        more = {name: value} if marked else {}
        shell = subprocess.Popen(
            ["sh", "-c", script],
            env={**os.environ, **more},
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(shell)
        return shell, Process.of(shell.pid)

    yield spawn
    for shell in started:
        shell.kill()
        shell.wait()


def test_orphans_are_found_by_their_mark(spawn, mark):
    shell, head = spawn("setsid sleep 600 & sleep 600 & read word")
    shell.communicate()
    assert not head.alive
    assert len(until(lambda: len(processes := family([head], mark)) == 2 and processes)) == 2
    assert not end([head], mark, 0.1, DEADLINE_S)
    assert not family([head], mark)


def test_children_that_lost_the_mark_are_found_by_their_parents(spawn, mark):
    _, head = spawn("env -i sleep 600 & wait")
    until(lambda: len(family([head], mark)) == 2)
    assert not end([head], mark, 0.1, DEADLINE_S)
    assert not family([head], mark)


def test_who_does_not_end_when_asked_is_killed(spawn, mark):
    shell, head = spawn("trap '' TERM; while :; do sleep 0.1; done")
    until(lambda: len(family([head], mark)) == 2)  # the trap is set
    assert not end([head], mark, 0.3, DEADLINE_S)
    assert shell.wait() == -signal.SIGKILL


def test_a_later_process_with_the_pid_is_left_alone(spawn, mark):
    shell, stranger = spawn("sleep 600", marked=False)
    for earlier in (replace(stranger, born=stranger.born - 1), replace(stranger, boot="another")):
        assert not earlier.alive
        assert not family([earlier], mark)
        assert not end([earlier], mark, 0.1, 1.0)
    assert shell.poll() is None
    assert stranger.alive
