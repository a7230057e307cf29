"""What belongs to a process, and each of its orders has as its own while it has its turn.

These are the generators of torch, Python and numpy, and standard output: so a trial draws the
numbers of a trial that runs alone, and prints into its own log.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from trainables.checkpoints import generators


@dataclass
class OwnState:
    """The state of an order between its turns."""

    device: torch.device
    output: int  # descriptor of its log
    draws: bool = True  # whether it draws from generators of its own
    _generators: dict[str, Any] = field(default_factory=dict)  # empty: as they are

    def enter(self) -> None:
        """Give the process this state."""
        if self._generators:
            generators.restore(self._generators, self.device)
        for number in (1, 2):
            os.dup2(self.output, number)

    def leave(self) -> None:
        """Keep the process's state for the order's next turn."""
        if self.draws:
            self._generators = generators.states(self.device)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # a full disk; the user's code has closed it
                stream.flush()

    def print(self, text: str) -> None:
        """Write a line into the order's log."""
        with suppress(OSError):  # a full disk
            os.write(self.output, f"{text}\n".encode())

    def draw_as(self, other: "OwnState") -> None:
        """Draw the numbers that another state has next."""
        self._generators = other._generators

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Let modules draw this order's numbers from torch, while no order has its turn."""
        torch.set_rng_state(self._generators["torch"])
        if on_gpu := "cuda" in self._generators:
            torch.cuda.set_rng_state(self._generators["cuda"], self.device)
        yield
        drawn = {"torch": torch.get_rng_state()}
        if on_gpu:
            drawn["cuda"] = torch.cuda.get_rng_state(self.device)
        self._generators = {**self._generators, **drawn}
