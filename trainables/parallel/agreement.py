"""Agreement of all ranks on the part of the model that they use next, before each collective of it.

Collectives know no names. If ranks use different blocks, gradients of different weights would be
added, and if one uses more blocks than another, it would wait forever.

On GPUs most passes use what the last one of their kind used, and such a pass needs no message
before its end. A rank that leaves this path asks the others before it goes on: they leave it, too,
or the message at the end of their pass is another one, since calls of NCCL do not wait. (If their
program reads from the GPU before that end, the order ends as stalled.) Calls of gloo do wait, so on
CPUs each use is compared.
"""

import zlib
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import torch
import torch.distributed as dist

from trainables.parallel.group import MAX_WAIT

END = "ended its pass"


class UnequalUse(ValueError):
    """Raised if ranks use different parts of the model, or one more of them than another."""


@dataclass
class Agreement:
    """The comparison of what ranks do next.

    Ranks compare what their processes know, in the CPU's memory: no GPU is waited for.
    """

    strategy: str
    ranks: dist.ProcessGroup | None  # None: the other ranks are not there (a forecast)
    follows: bool = False  # whether a pass like the last one is not compared before its end
    # Of the last pass of each kind: with gradients or without, and whether they are exchanged.
    paths: dict[tuple[bool, bool], list[str]] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)  # in this pass
    exchanges: bool = True  # whether passes exchange gradients: of micro-batches the last one does
    kind: tuple[bool, bool] = (True, True)  # of this pass

    @classmethod
    def of(cls, strategy: str, device: torch.device) -> "Agreement":
        """Return the agreement of ranks that train on this kind of device; all call it together.

        Its messages have a group of their own, so that none meets a collective of the model's.
        """
        if dist.get_backend() == "fake":
            return cls(strategy, None)
        group = dist.new_group(timeout=MAX_WAIT, backend="gloo")
        return cls(strategy, group, follows=device.type == "cuda")

    def close(self) -> None:
        """Free the group."""
        if self.ranks is not None:
            dist.destroy_process_group(self.ranks)

    def check(self, *uses: str) -> None:
        """Check that all ranks do the same next; all ranks call this together.

        Args:
            uses: what this rank does, such as "called layers.0", in this order; END ends the pass.

        Raises:
            UnequalUse: another rank does something else.
        """
        if self.ranks is None:
            return
        if not self.done:
            self.kind = torch.is_grad_enabled(), self.exchanges
        place, path = len(self.done), self.paths.get(self.kind, [])
        self.done += uses
        if self.follows and END not in uses and path[place : len(self.done)] == [*uses]:
            return
        self.paths[self.kind] = []
        self._compare()
        if END in uses:
            self.paths[self.kind], self.done = self.done, []

    def _compare(self) -> None:
        number = zlib.crc32("\n".join(self.done).encode())
        most = torch.tensor([number, -number], device="cpu")
        dist.all_reduce(most, dist.ReduceOp.MAX, self.ranks)
        if most.sum():
            raise self._refusal()

    def _refusal(self) -> UnequalUse:
        refusals: list[Any] = [None] * dist.get_world_size(self.ranks)
        dist.all_gather_object(refusals, self.done, self.ranks)
        other = next(rank for rank, theirs in enumerate(refusals) if theirs != refusals[0])
        pairs = zip_longest(refusals[0], refusals[other], fillvalue=END)
        first, second = next(pair for pair in pairs if pair[0] != pair[1])
        return UnequalUse(
            f"training.strategy is {self.strategy}, but ranks used different parts of the model: "
            f"rank 0 {first}, where rank {other} {second}; use every block for every batch (times "
            "0 where it does not count) and equally often on every rank, or choose ddp or zero1"
        )
