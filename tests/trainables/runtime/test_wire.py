"""Connections between coordinator and ranks."""

import threading
from multiprocessing import AuthenticationError, Pipe
from multiprocessing.connection import Listener

import pytest

from trainables.runtime.wire import Call, CoordinatorConnection, Leave, connect

KEY = b"a key of this slot"


def accepted(listener):
    """Return a thread that accepts a connection, and a list for it or for the error."""
    got = []

    def accept():
        try:
            got.append(listener.accept())
        except AuthenticationError as error:
            got.append(error)

    thread = threading.Thread(target=accept)
    thread.start()
    return thread, got


def test_another_key_is_refused():
    with Listener(("127.0.0.1", 0), authkey=KEY) as listener:
        thread, got = accepted(listener)
        with pytest.raises((AuthenticationError, EOFError, OSError)):
            connect(Call(listener.address, b"guessed", "s/slot-1"))
        thread.join(20)
        assert isinstance(got[0], AuthenticationError)


def test_threads_do_not_mix_their_messages():
    ours, theirs = Pipe()
    connection = CoordinatorConnection(ours)
    sent = [Leave("x" * 50_000 + str(number)) for number in range(8)]
    threads = [threading.Thread(target=connection.send, args=(message,)) for message in sent]
    for thread in threads:
        thread.start()
    got = [theirs.recv() for _ in sent]
    for thread in threads:
        thread.join(20)
    assert sorted(got) == sorted(sent)
