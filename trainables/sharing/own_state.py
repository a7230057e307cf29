"""What belongs to a process, and each of its orders has as its own while it has its turn.

These are the generators of torch, Python and numpy, and standard output: so a trial draws the
numbers of a trial that runs alone, and prints into its own log.
"""

import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from trainables.checkpoints import generators


@dataclass
class OwnState:
    """The state of an order between its turns."""

    device: torch.device
    output: int  # descriptor of its log
    _generators: dict[str, Any] = field(default_factory=dict)  # empty: as they are

    def enter(self) -> None:
        """Give the process this state."""
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
