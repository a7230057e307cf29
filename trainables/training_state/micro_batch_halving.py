"""Response to a micro-batch that does not fit into memory: halve it, and keep the batch size.

The gradient is a sum over micro-batches, so splitting them further changes nothing but rounding,
unless the model has batch norms: they see the samples of a micro-batch only.
If every rank knows (there is one rank, or ranks agreed before exchanging anything), the update is
tried again at once. Otherwise the other ranks wait in a collective that never ends: the order
fails, and begins again from its last checkpoint with smaller micro-batches.
"""

import sys
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

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

    def warn_of_batch_norms(self, model: nn.Module, rank: int) -> None:
        """Print that what a model with batch norms learns depends on micro-batches, if it does."""
        names = [name for name, part in model.named_modules() if isinstance(part, _BatchNorm)]
        if self.count > 1 and names and rank == 0:
            print(  # noqa: T201 - goes to the order's log
                f"warning: batch norms ({names[0]}, ...) see a micro-batch, 1/{self.count} of a "
                "rank's share of a batch, so the model learns something else than with accumulate: "
                "1; group or layer norms would not",
                file=sys.stderr,
                flush=True,
            )

    def refusal(self, samples: int, error: Exception) -> Exception:
        """Return the exception to raise if the other ranks cannot be told."""
        if self.count >= samples:
            return error
        size = -(-samples // self.count)
        return TooLarge(f"a micro-batch of {size} samples did not fit into memory: {error}")
