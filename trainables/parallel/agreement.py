"""Agreement of all ranks on the part of the model that they use next, before each collective of it.

Collectives know no names. If ranks use different blocks, gradients of different weights would be
added, and if one uses more blocks than another, it would wait forever.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
import torch.distributed as dist

END = "ended its pass"


class UnequalUse(ValueError):
    """Raised if ranks use different parts of the model, or one more of them than another."""


@dataclass
class Agreement:
    """The comparison of what ranks do next.

    Ranks compare what their processes know, in the CPU's memory: no GPU is waited for.
    """

    strategy: str
    ranks: dist.ProcessGroup | None  # passes messages in the CPU's memory; None: the default one
    alone: bool = False  # whether the other ranks are not there (a forecast)

    @classmethod
    def of(cls, strategy: str, device: torch.device) -> "Agreement":
        """Return the agreement of ranks that train on this kind of device; all call it together."""
        return cls(strategy, dist.new_group(backend="gloo") if device.type == "cuda" else None)

    def close(self) -> None:
        """Free the group."""
        if self.ranks is not None:
            dist.destroy_process_group(self.ranks)

    def check(self, *uses: str) -> None:
        """Check that all ranks do the same next; all ranks call this together.

        Args:
            uses: what this rank does, such as "called layers.0", in this order.

        Raises:
            UnequalUse: another rank does something else.
        """
        if self.alone:
            return
        number = zlib.crc32("\n".join(uses).encode())
        most = torch.tensor([number, -number])
        dist.all_reduce(most, dist.ReduceOp.MAX, self.ranks)
        if most.sum():
            raise self._refusal(uses)

    def _refusal(self, uses: Sequence[str]) -> UnequalUse:
        found: list[Any] = [None] * dist.get_world_size(self.ranks)
        dist.all_gather_object(found, uses, self.ranks)
        other = next(rank for rank, theirs in enumerate(found) if theirs != found[0])
        pairs = zip_longest(found[0], found[other], fillvalue=END)
        first, second = next(pair for pair in pairs if pair[0] != pair[1])
        return UnequalUse(
            f"training.strategy is {self.strategy}, but ranks used different parts of the model "
            f"for their samples: rank 0 {first}, where rank {other} {second}; use every block for "
            "every batch (times 0 where it does not count), or choose ddp or zero1"
        )
