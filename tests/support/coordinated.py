"""A slot's coordinator over real sockets; the test has its ranks' ends of the connections."""

import queue
from contextlib import contextmanager

from trainables.runtime.coordinator import Coordinator
from trainables.runtime.wire import Hello, Ready, connect

WAIT_S = 20
ADDRESS = ("127.0.0.1", 7)  # at which rank 0 says that the ranks meet


class Slot:
    """A coordinator, its messages, and the connections of its ranks."""

    def __init__(self, switchboard, world_size, leader=None, stall_s=600.0):
        self.said, self.world_size = queue.Queue(), world_size
        make = leader or (lambda say, stall_s: Coordinator(world_size, say, stall_s))
        self.leader = make(self.said.put, stall_s)
        switchboard.connect("s/slot-1", self.leader)
        self.call = switchboard.call("s/slot-1")

    @contextmanager
    def ranks(self):
        connections = [connect(self.call) for _ in range(self.world_size)]
        for rank, connection in enumerate(connections):
            connection.send(Hello("s/slot-1", rank, ADDRESS if rank == 0 else None))
        assert self.next() == Ready()
        assert [connection.recv() for connection in connections] == [ADDRESS] * self.world_size
        yield connections
        for connection in connections:
            connection.close()

    def next(self):
        return self.said.get(timeout=WAIT_S)
