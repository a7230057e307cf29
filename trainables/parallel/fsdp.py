"""FSDP: each rank keeps a shard of every weight, and gathers the others' shards when needed.

Sources: Rajbhandari et al., ZeRO (2020), sections 5.2 and 5.3; Zhao et al., PyTorch FSDP (2023).
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

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
from torch.nn.modules.batchnorm import _NormBase

from trainables.blocks import blocks
from trainables.modules import reshard
from trainables.parallel.agreement import END, Agreement
from trainables.parallel.strategy import Group
from trainables.parallel.tensor import check_gradients, split_layers, sync_replicated
from trainables.parallel.unit_usage import UnitUsage
from trainables.training import Precision
from trainables.training_state import precision as formats
from trainables.training_state.loop_state import TrainingState


@dataclass(frozen=True)
class Fsdp(Group):
    """PyTorch's fully_shard on each block and on the layers around the blocks; a Strategy.

    With `tensor_parallel`, that many neighbouring ranks form one data-parallel rank: they split
    layers among themselves first. With `shard_ranks`, that many neighbours share a copy of the
    weights, and gradients are averaged over the copies (hybrid sharding).
    """

    @cached_property
    def usage(self) -> UnitUsage:
        """Return what this rank uses of the model."""
        return UnitUsage(Agreement.of("fsdp", self.worker.device))

    def to_device(self, model: nn.Module) -> nn.Module:
        training = self.worker.training
        if training.tensor_parallel > 1 or training.sync_batchnorm:
            return super().to_device(model)
        # fully_shard moves one module at a time to the GPU, so the whole model need not fit there;
        # and casting shards takes no second copy of a model whose weights are mapped from files.
        return model

    @cached_property
    def mesh(self) -> DeviceMesh:
        """Return the mesh of ranks: `data` shards weights, `tensor` splits layers."""
        worker, training = self.worker, self.worker.training
        ranks = {"data": worker.world_size}
        if training.tensor_parallel > 1:
            ranks = {"data": self.dp_size, "tensor": training.tensor_parallel}
        elif 0 < training.shard_ranks < worker.world_size:
            copies = worker.world_size // training.shard_ranks
            ranks = {"copies": copies, "data": training.shard_ranks}
        return init_device_mesh(
            worker.device.type, tuple(ranks.values()), mesh_dim_names=tuple(ranks)
        )

    def shard(self, model: nn.Module) -> nn.Module:
        model, training = super().shard(model), self.worker.training
        if training.cpu_offload and self.worker.device.type == "cpu":
            raise ValueError("training.cpu_offload is true, but there is no GPU; leave it out")
        if training.tensor_parallel > 1:
            split_layers(model, self.plan(model), self.mesh["tensor"])
        ranks = self.mesh if training.tensor_parallel == 1 else self.mesh["data"]
        dtypes = policy(training.precision)
        # Layers around the blocks take what the blocks give, in their format: only the whole model
        # gives outputs in 32 bits.
        inner = replace(dtypes, output_dtype=None)
        offload = CPUOffloadPolicy() if training.cpu_offload else OffloadPolicy()
        # Running means stay in 32 bits, and torch takes no 16-bit weights beside them (2.13).
        exact = MixedPrecisionPolicy(cast_forward_inputs=False)
        mixed = training.precision.endswith("-mixed")
        units = dict.fromkeys(_running_norms(model), exact) if mixed else {}
        for block in _blocks_to_shard(model):
            units.setdefault(block, inner)
        for unit, unit_policy in units.items():
            fully_shard(
                unit,
                mesh=ranks,
                reshard_after_forward=training.reshard_after_forward,
                mp_policy=unit_policy,
                offload_policy=offload,
            )
        # The backward pass begins where the forward pass ends, so freeing weights is of no use.
        fully_shard(
            model,
            mesh=ranks,
            reshard_after_forward=False,
            mp_policy=dtypes,
            offload_policy=offload,
        )
        formats.cast(model, training.precision)
        self.usage.watch(model)
        return model

    @contextmanager
    def no_sync(self, model: nn.Module) -> Iterator[None]:
        if not isinstance(model, FSDPModule):
            raise TypeError(f"model is {type(model).__name__}; shard it before training")
        model.set_requires_gradient_sync(False)
        self.usage.agreement.exchanges = False
        try:
            yield
        finally:
            model.set_requires_gradient_sync(True)
            self.usage.agreement.exchanges = True

    def end_update(self, model: nn.Module, careful: bool, failure: Exception | None) -> None:
        self.usage.settle_gradients()
        if careful and self.worker.training.tensor_parallel > 1:
            check_gradients(model, self.worker.device)

    def sync_replicas(self, state: TrainingState) -> None:
        if self.worker.training.tensor_parallel > 1:
            sync_replicated(state, self.worker.device)

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        if self.worker.training.tensor_parallel == 1:
            return super().all_reduce_sum(values)
        dist.all_reduce(values, group=self.mesh.get_group("data"))
        return values

    @contextmanager
    def evaluating(self, model: nn.Module) -> Iterator[None]:
        try:
            yield
        finally:  # no backward pass frees gathered weights, and they would be out of date
            reshard(model)

    def after_forward(self) -> None:
        self.usage.agreement.check(END)

    def close(self) -> None:
        self.usage.agreement.close()


def _running_norms(model: nn.Module) -> list[nn.Module]:
    """Return the norms with weights and running means, such as batch norms."""
    return [
        module
        for module in model.modules()
        if isinstance(module, _NormBase) and module.affine and module.track_running_stats
    ]


def _blocks_to_shard(model: nn.Module) -> list[nn.Module]:
    """Return the blocks to gather one at a time: all but those sharing a weight with other modules.

    A shared weight is gathered with the modules around the blocks, for the whole pass.
    """
    holders = _count_holders(model)
    return [
        block
        for block in blocks(model).values()
        # Weights are gathered when a module is called, and lists are never called.
        if not isinstance(block, nn.ModuleList | nn.ModuleDict)
        and all(holders[weight] == count for weight, count in _count_holders(block).items())
    ]


def _count_holders(model: nn.Module) -> Counter[nn.Parameter]:
    """Count the places of the model that hold each weight."""
    places = model.named_modules(remove_duplicate=False)
    return Counter(weight for _, module in places for weight in module.parameters(recurse=False))


def policy(precision: Precision) -> MixedPrecisionPolicy:
    """Return the number formats of gathered weights, of reduced gradients and of outputs."""
    if not precision.endswith("-mixed"):
        return MixedPrecisionPolicy()  # as they are stored
    compute_dtype = torch.float16 if precision == "16-mixed" else torch.bfloat16
    return MixedPrecisionPolicy(compute_dtype, torch.float32, torch.float32)
