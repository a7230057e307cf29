"""Turns: of several threads that train, one works at a time, in a process state of its own.

torch's generators and the standard output belong to the process. Whoever takes a turn gets them as
it left them, so a trial draws the numbers of a trial that runs alone, and prints into its own log.

The ranks of a slot have their turns in one order, which rank 0 chooses and the others follow:
otherwise two ranks would wait for each other in the collectives of two trials.
"""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from trainables.checkpoints import generators


@dataclass(eq=False)
class OwnState:
    """What an order has of the process's state while it has its turn."""

    order: int
    device: torch.device
    output: int  # descriptor of its log
    _generators: dict[str, Any] = field(default_factory=dict)  # empty: as they are

    def enter(self) -> None:
        """Set the process's state to the order's."""
        if self._generators:
            generators.restore(self._generators, self.device)
        for number in (1, 2):
            os.dup2(self.output, number)

    def leave(self) -> None:
        """Keep the process's state for the order's next turn."""
        self._generators = generators.states(self.device)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # a full disk; the user's code has closed it
                stream.flush()


class Turns:
    """Give turns to threads in the order in which they ask.

    Args:
        publish: called with the order that gets each turn, for the other ranks; None: there are no
            others.
    """

    def __init__(self, publish: Callable[[int], None] | None = None) -> None:
        self._publish = publish
        self._changed = threading.Condition()
        self._line: deque[OwnState] = deque()
        self._holder: OwnState | None = None

    @contextmanager
    def taken(self, own: OwnState) -> Iterator[None]:
        """Wait for a turn, and have it within the context."""
        self._take(own)
        try:
            yield
        finally:
            self._give_back(own)

    def pass_on(self, own: OwnState) -> None:
        """Let those that wait have their turns first."""
        if self._line or self._publish is not None:  # the other ranks ask who is next
            with self.left(own):
                pass

    @contextmanager
    def left(self, own: OwnState) -> Iterator[None]:
        """Leave one's turn to others within the context, and wait for another at its end."""
        self._give_back(own)
        try:
            yield
        finally:
            self._take(own)

    def _take(self, own: OwnState) -> None:
        with self._changed:
            self._line.append(own)
            self._changed.wait_for(lambda: self._holder is None and self._is_next(own))
            self._line.remove(own)
            self._holder = own
        if self._publish is not None:
            self._publish(own.order)
        own.enter()

    def _is_next(self, own: OwnState) -> bool:
        return self._line[0] is own

    def _give_back(self, own: OwnState) -> None:
        own.leave()
        with self._changed:
            self._holder = None
            self._changed.notify_all()


class FollowedTurns(Turns):
    """Turns in the order that rank 0 publishes."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0  # the order whose turn it is; 0: unknown yet

    def follow(self, turns: Iterator[int]) -> None:
        """Give turns to these orders, until there are no more."""
        for order in turns:
            with self._changed:
                self._changed.wait_for(lambda: not self._next)
                self._next = order
                self._changed.notify_all()

    def pass_on(self, own: OwnState) -> None:
        with self.left(own):
            pass

    def _is_next(self, own: OwnState) -> bool:
        if self._next != own.order:
            return False
        self._next = 0
        self._changed.notify_all()  # for the next one to be looked up meanwhile
        return True
