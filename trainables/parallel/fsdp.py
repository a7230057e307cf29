"""Each rank keeps its part of every weight, and gathers the others' parts while it needs them.

Sources: Rajbhandari et al., ZeRO (2020), sections 5.2 and 5.3; Zhao et al., PyTorch FSDP (2023).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)

from trainables.blocks import blocks
from trainables.parallel.strategies import Group
from trainables.parallel.tensor import split
from trainables.training import Precision

if TYPE_CHECKING:
    from trainables.fitting.passes import Passes


@dataclass(frozen=True)
class Fsdp(Group):
    """PyTorch's fully_shard on each block and on what is around them; a Strategy.

    With `tensor_ranks` neighbouring ranks share a place: they split layers among themselves first.
    """

    @property
    def place(self) -> int:
        return self.worker.rank // self.worker.training.tensor_ranks

    @property
    def places(self) -> int:
        return self.worker.world_size // self.worker.training.tensor_ranks

    @property
    def home(self) -> torch.device:
        # fully_shard takes a module at a time to the GPU, which need not hold the whole model.
        whole = self.worker.training.tensor_ranks > 1 or self.worker.training.sync_batchnorm
        return self.worker.device if whole else torch.device("cpu")

    @cached_property
    def mesh(self) -> DeviceMesh:
        """The ranks: in columns those that shard, in rows those that split layers."""
        worker, rows = self.worker, self.worker.training.tensor_ranks
        if rows == 1:
            return init_device_mesh(
                worker.device.type, (worker.world_size,), mesh_dim_names=("data",)
            )
        return init_device_mesh(
            worker.device.type, (self.places, rows), mesh_dim_names=("data", "tensor")
        )

    def shard(self, model: nn.Module) -> nn.Module:
        model, training = super().shard(model), self.worker.training
        if training.offload and self.worker.device.type == "cpu":
            raise ValueError("training.offload is true, but there is no GPU; leave it out")
        if training.tensor_ranks > 1:
            split(model, self.plan(model), self.mesh["tensor"])
        ranks, formats = self.mesh["data"], policy(training.precision)
        offload = CPUOffloadPolicy() if training.offload else OffloadPolicy()
        for block in _separate(model):
            fully_shard(
                block,
                mesh=ranks,
                reshard_after_forward=training.reshard,
                mp_policy=formats,
                offload_policy=offload,
            )
        # The backward pass begins where the forward pass ends: there is nothing to free between.
        fully_shard(
            model,
            mesh=ranks,
            reshard_after_forward=False,
            mp_policy=formats,
            offload_policy=offload,
        )
        return model

    @contextmanager
    def local(self, model: nn.Module) -> Iterator[None]:
        if not isinstance(model, FSDPModule):
            raise TypeError(f"model is {type(model).__name__}; shard it before training")
        model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            model.set_requires_gradient_sync(True)

    def sum(self, values: Tensor) -> Tensor:
        dist.all_reduce(values, group=self.mesh.get_group("data"))
        return values

    def autocast(self) -> AbstractContextManager[None]:
        return nullcontext()  # the policy gives weights and inputs their formats

    def evaluate(self, passes: "Passes", parts: Sequence[Tensor]) -> dict[str, Tensor]:
        with _gathered(passes.bare):
            return super().evaluate(passes, parts)

    def show(self, passes: "Passes") -> str:
        with _gathered(passes.bare):
            return super().show(passes)


def _separate(model: nn.Module) -> list[nn.Module]:
    """The blocks to gather one at a time: all but those that share a weight with another module.

    Such a weight is gathered with what is around the blocks, for the whole of a pass.
    """
    holders = _holders(model)
    return [
        block
        for block in blocks(model).values()
        # A call is what gathers weights, and lists are not called.
        if not isinstance(block, nn.ModuleList | nn.ModuleDict)
        and all(holders[weight] == own for weight, own in _holders(block).items())
    ]


def _holders(model: nn.Module) -> Counter[nn.Parameter]:
    """In how many places of the model each weight is."""
    places = model.named_modules(remove_duplicate=False)
    return Counter(weight for _, module in places for weight in module.parameters(recurse=False))


@contextmanager
def _gathered(model: nn.Module) -> Iterator[None]:
    """Within it, passes gather weights that no backward pass frees; they would be out of date."""
    try:
        yield
    finally:
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


def policy(precision: Precision) -> MixedPrecisionPolicy:
    """In which formats weights are gathered, gradients added up, and results given."""
    if not precision.endswith("-mixed"):
        return MixedPrecisionPolicy()  # as they are stored
    computed = torch.float16 if precision == "16-mixed" else torch.bfloat16
    return MixedPrecisionPolicy(computed, torch.float32, torch.float32)
