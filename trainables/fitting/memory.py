"""What to do when a micro-batch does not fit into memory: halve it, and keep the batch.

The gradient is a sum over micro-batches, so splitting them further changes nothing but rounding.
Where every rank knows (one rank, or ranks that agreed before they exchanged anything), the update
is tried again at once. Elsewhere the others wait in a collective that never ends: the order fails,
and begins again from its last checkpoint with smaller micro-batches.
"""

from dataclasses import dataclass

import torch

from trainables.worker import TooLarge


class AgreedOutOfMemory(torch.OutOfMemoryError):
    """A micro-batch did not fit on some rank, and all ranks know."""


@dataclass
class Split:
    """Into how many micro-batches a rank splits its share of each batch."""

    parts: int

    def halve(self, samples: int, error: Exception) -> None:
        """Go on with micro-batches half as large.

        Args:
            samples: of the largest share of the batch that did not fit.

        Raises:
            Exception: `error` itself; there is one sample a micro-batch already.
        """
        if self.parts >= samples:
            raise error
        self.parts *= 2

    def refusal(self, samples: int, error: Exception) -> Exception:
        """What to raise where the other ranks cannot be told."""
        if self.parts >= samples:
            return error
        size = -(-samples // self.parts)
        return TooLarge(f"a micro-batch of {size} samples did not fit into memory: {error}")
