"""The coordinators of a slot whose ranks carry out several orders in turns. Without torch.

A lane is a place for one order. Each has connections to the ranks of its own, and the coordinator
of a slot with one order at a time.
"""

import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Literal

from trainables.runtime.assignment import Assignment, Outcome
from trainables.runtime.coordinator import Coordinator
from trainables.runtime.wire import Hello, Message, Ready


class LaneCoordinators:
    """Carry out up to `lanes` orders at once, each on the slot's ranks.

    Args:
        say: called with each message, from a coordinator's thread.
        stall_s: seconds without a sign of life after which an order counts as hanging.
    """

    def __init__(
        self, lanes: int, world_size: int, say: Callable[[Message], None], stall_s: float
    ) -> None:
        self._tell = say
        self._lock = threading.Lock()
        self._missing = lanes  # lanes that are not ready yet
        self._leaving = ""  # why all orders are to end; empty: they are not
        self._lane_of: dict[int, int] = {}  # by order
        self._lanes = [
            Coordinator(world_size, partial(self._say, lane), stall_s) for lane in range(lanes)
        ]

    def join(self, hello: Hello, connection: Connection) -> None:
        """Take over a connection of a rank, which it made for one of the lanes."""
        self._lanes[hello.lane].join(hello, connection)

    def carry_out(self, assignment: Assignment) -> None:
        """Send one more order to the ranks; there must be a lane without one."""
        with self._lock:
            taken = {*self._lane_of.values()}
            lane = next(lane for lane in range(len(self._lanes)) if lane not in taken)
            self._lane_of[assignment.order.id] = lane
        self._lanes[lane].carry_out(assignment)
        if self._leaving:
            self._lanes[lane].leave(self._leaving)

    def decide(self, order: int, verdict: Literal["continue", "stop"]) -> None:
        """Pass on the controller's answer to a milestone; a `stop` may come at any time."""
        lane = self._lane_of.get(order)
        if lane is not None:
            self._lanes[lane].decide(order, verdict)

    def leave(self, why: str) -> None:
        """End all orders at their next reports, so that the trials resume elsewhere."""
        self._leaving = why
        for lane in self._lanes:
            lane.leave(why)

    def _say(self, lane: int, message: Message) -> None:
        with self._lock:
            if isinstance(message, Ready):
                self._missing -= 1
                if self._missing:
                    return
            if isinstance(message, Outcome):
                del self._lane_of[message.order]
        self._tell(message)
