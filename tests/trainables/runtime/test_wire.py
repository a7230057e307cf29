"""Connections between coordinator and ranks."""

import threading
from multiprocessing import Pipe

from trainables.runtime.wire import CoordinatorConnection, Leave


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
