"""Writing beside training. If these fail, a lost checkpoint goes unnoticed."""

import threading

import pytest

from trainables.checkpoints.async_writer import AsyncWriter


def test_work_runs_beside_the_caller_until_it_is_waited_for():
    writer, go, done = AsyncWriter(), threading.Event(), []
    writer.start(lambda: (go.wait(20), done.append(threading.current_thread().name)))
    assert done == []
    go.set()
    writer.wait()
    assert done == ["checkpoint"]


def test_an_error_is_raised_once_where_it_is_waited_for():
    writer = AsyncWriter()

    def fail():
        raise OSError(28, "No space left on device")

    writer.start(fail)
    with pytest.raises(OSError, match="No space left"):
        writer.wait()
    writer.wait()
    writer.start(lambda: None)
    writer.wait()


def test_waiting_for_nothing_returns():
    AsyncWriter().wait()
