"""Response to a micro-batch that does not fit into memory: halve it, and keep the batch size.

The gradient is a sum over micro-batches, so splitting them further changes nothing but rounding.
If every rank knows (there is one rank, or ranks agreed before exchanging anything), the update is
tried again at once. Otherwise the other ranks wait in a collective that never ends: the order
fails, and begins again from its last checkpoint with smaller micro-batches.
"""

from dataclasses import dataclass

import torch

from trainables.worker import TooLarge


class AgreedOutOfMemory(torch.OutOfMemoryError):
    """Raised if a micro-batch did not fit on some rank, and all ranks know."""


@dataclass
class MicroBatching:
    """The number of micro-batches into which a rank splits its share of each batch."""

    count: int

    def halve(self, samples: int, error: Exception) -> None:
        """Continue with micro-batches half as large.

        Args:
            samples: of the largest share of the batch that did not fit.

        Raises:
            Exception: `error` itself, if micro-batches have one sample already.
        """
        if self.count >= samples:
            raise error
        self.count *= 2

    def refusal(self, samples: int, error: Exception) -> Exception:
        """Return the exception to raise if the other ranks cannot be told."""
        if self.count >= samples:
            return error
        size = -(-samples // self.count)
        return TooLarge(f"a micro-batch of {size} samples did not fit into memory: {error}")
