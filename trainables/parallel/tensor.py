"""Layers split among ranks, all of which see every sample: tensor parallelism, with DTensors.

What the plan does not split is whole on each rank, as a replicated DTensor: optimizers and
reductions take DTensors or plain tensors, and not both at once (torch 2.13). Between the layers of
the plan modules compute with plain tensors, so they need not know.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import Parameter

from trainables.optim.norms import part
from trainables.parallel.plan import How, between, check
from trainables.parallel.strategies import Strategy

STYLES: dict[How, type[ColwiseParallel] | type[RowwiseParallel]] = {
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
}


@dataclass(frozen=True)
class TensorParallel(Strategy):
    """One model over all ranks; a Strategy. What ranks add up is equal on all of them."""

    @property
    def place(self) -> int:
        return 0

    @property
    def places(self) -> int:
        return 1

    def shard(self, model: nn.Module) -> nn.Module:
        worker = self.worker
        mesh = init_device_mesh(
            worker.device.type, (worker.world_size,), mesh_dim_names=("tensor",)
        )
        return split(model, self.plan(model), mesh)

    def worst(self, values: Tensor) -> Tensor:
        dist.all_reduce(values, dist.ReduceOp.MAX)
        return values


def split(model: nn.Module, plan: Mapping[str, How], mesh: DeviceMesh) -> nn.Module:
    """Split the layers of the plan over the mesh's one dimension, in place.

    Raises:
        ValueError: the plan cannot be carried out.
    """
    check(model, plan, mesh.size())
    inside = list(between(model, plan))
    styles: dict[str, ParallelStyle] = {name: STYLES[how]() for name, how in plan.items()}
    parallelize_module(model, mesh, styles)
    _replicate(model, mesh)
    for module in inside:
        if isinstance(module, nn.Dropout):
            Streams(mesh.get_local_rank()).attach(module)
    return model


@dataclass
class Streams:
    """Gives each rank random numbers of its own while a module draws for its share of a layer.

    All ranks draw the same elsewhere, so that what is whole stays equal on them.
    """

    rank: int
    kept: list[Tensor] = field(default_factory=list)

    def attach(self, module: nn.Module) -> None:
        """Do so from now on."""
        module.register_forward_pre_hook(self._before)
        module.register_forward_hook(self._after, always_call=True)

    def _before(self, module: nn.Module, given: tuple[Tensor, ...]) -> None:
        if module.training:
            on = given[0].device
            seed = int(torch.randint(2**62, ()))
            self.kept = list(_states(on))
            torch.manual_seed(seed + self.rank)

    def _after(self, module: nn.Module, given: tuple[Tensor, ...], found: Tensor) -> None:
        if self.kept:
            torch.set_rng_state(self.kept[0])
            if len(self.kept) > 1:
                torch.cuda.set_rng_state(self.kept[1], given[0].device)
            self.kept = []


def _states(device: torch.device) -> Iterator[Tensor]:
    yield torch.get_rng_state()
    if device.type == "cuda":
        yield torch.cuda.get_rng_state(device)


def _replicate(model: nn.Module, mesh: DeviceMesh) -> None:
    """Make what is not split a replicated DTensor; equal seeds have given equal values."""
    whole: dict[Tensor, Parameter] = {}
    for module in model.modules():
        plain = [
            (name, weight)
            for name, weight in module.named_parameters(recurse=False, remove_duplicate=False)
            if not isinstance(weight, DTensor)
        ]
        for name, weight in plain:
            if weight not in whole:
                spread = DTensor.from_local(weight.data, mesh, [Replicate()], run_check=False)
                whole[weight] = Parameter(spread, requires_grad=weight.requires_grad)
            module.register_parameter(name, whole[weight])
        if plain:
            _compute_locally(module)


def _compute_locally(module: nn.Module) -> None:
    """Let the module's forward see plain tensors in place of its replicated weights."""
    kind = type(module)

    def forward(self: nn.Module, *given: object, **named: object) -> object:
        # Attention reads the weights of its projection without calling it.
        reached = [self.out_proj] if isinstance(self, nn.MultiheadAttention) else []
        with _plain([self, *reached]):
            return kind.forward(self, *given, **named)

    module.__class__ = type(kind.__name__, (kind,), {"forward": forward})


@contextmanager
def _plain(modules: Sequence[nn.Module]) -> Iterator[None]:
    held = [
        (module, name, weight)
        for module in modules
        for name, weight in module._parameters.items()
        if weight is not None and isinstance(weight, DTensor)
    ]
    # Not by setattr, which takes nothing but parameters under a parameter's name.
    for module, name, weight in held:
        module._parameters[name] = part(weight)  # type: ignore[assignment]
    try:
        yield
    finally:
        for module, name, weight in held:
            module._parameters[name] = weight
