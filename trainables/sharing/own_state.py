"""What belongs to a process, and each of its orders has as its own while it has its turn.

These are the generators of torch, Python and numpy, and standard output: so a trial draws the
numbers of a trial that runs alone, and prints into its own log.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trainables.checkpoints import generators

NAMES = ("torch", "cuda")  # of torch's generators


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
        before, names = drawn(self.device), [name for name in NAMES if name in self._generators]
        _set([self._generators[name] for name in names], self.device)
        yield
        self._generators = {**self._generators, **dict(zip(names, drawn(self.device), strict=True))}
        _set(before, self.device)


def drawn(device: torch.device) -> list[Tensor]:
    """Return the states of torch's generators: the processor's, and a GPU's."""
    on_gpu = device.type == "cuda"
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if on_gpu else [])]


def _set(states: Sequence[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state, device)
