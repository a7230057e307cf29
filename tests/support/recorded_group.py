"""A process group of any size in one process: one rank of it runs, and its collectives are noted.

Nothing is sent. A rank gets as results what it gave itself: sums and maxima are its own values,
and gathered values are copies of them. torch's own fake group neither tells what was called, nor
works below DistributedDataParallel (torch 2.13).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d as c10d
from torch.distributed.tensor.debug import _clear_sharding_prop_cache

from trainables.parallel import agreement
from trainables.parallel.agreement import Agreement

OBJECT = -1  # bytes of a message of pickled objects, whose size says nothing


@dataclass(frozen=True)
class Collective:
    """A collective as this rank called it."""

    kind: str
    bytes: int  # of the complete tensor, as all ranks together have it; OBJECT: unknown
    ranks: int  # of its group
    root: int | None = None  # the sender of a broadcast
    # Whether it runs in a thread beside training, as writers of checkpoints do, in their own group:
    # what comes first there and in training is chance.
    aside: bool = field(
        default_factory=lambda: threading.current_thread() is not threading.main_thread()
    )


called: list[Collective] = []  # by the rank that runs


class RecordedGroup(dist.ProcessGroup):
    """The rank's group; it fulfils what torch.distributed asks of one."""

    def __init__(self, rank: int, ranks: int) -> None:
        super().__init__(rank, ranks)
        self._ranks, self._rank, self._name = ranks, rank, ""

    def size(self) -> int:
        return self._ranks

    def getBackendName(self) -> str:
        return "recorded"

    @property
    def pg_name(self) -> str:
        self._name = c10d._world.pg_names.get(self, self._name)  # it is asked after its end, too
        return self._name

    @property
    def group_name(self) -> str:
        return self.pg_name

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        return self._note("all_reduce", tensors, tensors)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Any:
        return self._note("all_reduce", tensors, tensors)

    def barrier(self, opts: Any = None) -> Any:
        return self._note("barrier", [], [torch.zeros(1)])

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Any:
        return self._note("broadcast", tensors, tensors, opts.rootRank)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        for output in outputs[0]:
            output.detach().copy_(inputs[0].detach())
        return self._note("all_gather", outputs[0], outputs)

    def all_gather_single(self, output: Tensor, input_: Tensor, opts: Any = None) -> Any:
        output.detach().view(self._ranks, -1).copy_(input_.detach().clone().view(1, -1))
        return self._note("all_gather", [output], [output])

    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        works = [self.all_gather_single(*pair) for pair in zip(outputs, inputs, strict=True)]
        return works[-1]

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Any:
        for output in outputs:
            output.detach().zero_()
            if inputs:
                output.detach().copy_(inputs[0][self._rank])
        return self._note("scatter", outputs * self._ranks, outputs, opts.rootRank)

    def reduce_scatter_single(self, output: Tensor, input_: Tensor, opts: Any = None) -> Any:
        share = input_.detach().view(self._ranks, -1)[self._rank].clone()
        output.detach().copy_(share.view_as(output))
        return self._note("reduce_scatter", [input_], [output])

    def _note(self, kind: str, counted: list[Tensor], result: Any, root: int | None = None) -> Any:
        called.append(Collective(kind, sum(item.nbytes for item in counted), self._ranks, root))
        future: Any = torch.futures.Future()
        future.set_result(result)
        return torch._C._distributed_c10d._create_work_from_future(future)


@contextmanager
def recorded(rank: int, ranks: int) -> Iterator[list[Collective]]:
    """Provide a group of so many ranks, in which this process is one; yield what it calls.

    Agreements of ranks go as on GPUs, where a pass like the last one is compared at its end.
    """
    if "RECORDED" not in vars(dist.Backend):
        dist.Backend.register_backend("recorded", _create, devices=["cpu"])
    called.clear()
    new_group = dist.new_group

    def agree(strategy: str, device: torch.device) -> Agreement:
        return Agreement(strategy, new_group(), follows=True)

    with (
        patch.object(c10d, "_store_based_barrier"),  # the others are not there
        patch.object(dist, "new_group", lambda *_, backend=None, **given: new_group(**given)),
        patch.object(agreement.Agreement, "of", agree),
        patch.object(dist, "all_gather_object", _all_gather_object),
        patch.object(dist, "gather_object", _gather_object),
    ):
        dist.init_process_group("recorded", store=dist.HashStore(), rank=rank, world_size=ranks)
        try:
            yield called
        finally:
            dist.destroy_process_group()
            _clear_sharding_prop_cache()  # it has the names of a mesh's groups


def _create(store: object, rank: int, ranks: int, timeout: object) -> RecordedGroup:
    return RecordedGroup(rank, ranks)


def _all_gather_object(found: list[Any], own: Any, group: Any = None) -> None:
    found[:] = [own] * len(found)
    called.append(Collective("all_gather_object", OBJECT, dist.get_world_size(group)))


def _gather_object(
    own: Any, found: list[Any] | None = None, dst: int = 0, group: Any = None
) -> None:
    if found is not None:
        found[:] = [own] * len(found)
    called.append(Collective("gather_object", OBJECT, dist.get_world_size(group), dst))
