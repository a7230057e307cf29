"""Tensor parallelism with DTensor: each rank has a share of every planned layer, and all samples.

Parameters outside the plan are complete on each rank, as replicated DTensors: optimizers and
reductions take DTensors or plain tensors, and not both at once (torch 2.13).

Between a column-wise layer and its row-wise one a rank computes with a LocalShard, a tensor type
whose other shards are on other ranks. Where a LocalShard is combined with a complete tensor (the
weight of a norm over heads, say), the latter's gradient is the sum of all ranks' gradients, which
its backward pass adds up: the operator f of Shoeybi et al., Megatron-LM (2019), section 3.
"""

import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import Parameter
from torch.utils._pytree import tree_leaves, tree_map

from trainables.errors import out_of_memory
from trainables.optim.norms import local_part
from trainables.parallel.plan import How, between, check
from trainables.parallel.strategy import Strategy
from trainables.training_state.loop_state import TrainingState

STYLES: dict[How, type[ColwiseParallel] | type[RowwiseParallel]] = {
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
}


@dataclass(frozen=True)
class TensorParallel(Strategy):
    """Tensor parallelism of one model over all ranks, whose reductions agree; a Strategy."""

    @cached_property
    def mesh(self) -> DeviceMesh:
        worker = self.worker
        return init_device_mesh(
            worker.device.type, (worker.world_size,), mesh_dim_names=("tensor",)
        )

    def shard(self, model: nn.Module) -> nn.Module:
        return split_layers(model, self.plan(model), self.mesh)

    def end_update(self, model: nn.Module, careful: bool, failure: Exception | None) -> None:
        if careful:
            check_gradients(model, self.worker.device)

    def sync_replicas(self, state: TrainingState) -> None:
        sync_replicated(state, self.worker.device)

    def all_reduce_max(self, values: Tensor) -> Tensor:
        dist.all_reduce(values, dist.ReduceOp.MAX)
        return values


def split_layers(model: nn.Module, plan: Mapping[str, How], mesh: DeviceMesh) -> nn.Module:
    """Split the layers of the plan over the mesh's one dimension, in place.

    Raises:
        ValueError: the plan cannot be carried out.
    """
    check(model, plan, mesh.size())
    between_pairs = list(between(model, plan))
    parameters = {name for name, _ in model.named_parameters()} & plan.keys()
    styles: dict[str, ParallelStyle] = {
        name: STYLES[how]() for name, how in plan.items() if name not in parameters
    }
    parallelize_module(model, mesh, styles)
    share_class: type[LocalShard] = type("LocalShard", (LocalShard,), {"group": mesh.get_group()})
    for name in styles:
        layer = model.get_submodule(name)
        if plan[name] == "colwise":
            layer.register_forward_pre_hook(_CheckInput(name), prepend=True)
            layer.register_forward_hook(share_class.marked)
        else:
            assert isinstance(layer, nn.Linear)
            width = layer.in_features // mesh.size()
            layer.register_forward_pre_hook(_CheckInput(name, width), prepend=True)
    model.register_forward_hook(_refuse_shares)
    _replicate(model, mesh, parameters, share_class)
    for module in between_pairs:
        if isinstance(module, nn.Dropout):
            RankGenerators(mesh.get_local_rank()).attach(module)
    return model


class LocalShard(Tensor):
    """A rank's share of a tensor split among ranks, or a result computed from it.

    Each mesh has its own subclass, with its group.
    """

    group: ClassVar[dist.ProcessGroup]  # the ranks with the other shares

    @classmethod
    def marked(cls, layer: nn.Module, given: object, found: Tensor) -> Tensor:
        """Mark a column-wise layer's output, or part of a parameter, as a share; a forward hook."""
        # Fake tensors (of memory estimation) have their own type, and are only measured.
        return found.as_subclass(cls) if type(found) is Tensor else found

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", str(func))
        if name in CONSTANT:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        arguments = args, dict(kwargs or {})
        complete = [
            leaf
            for leaf in tree_leaves(arguments)
            if isinstance(leaf, Tensor) and not isinstance(leaf, LocalShard | DTensor)
        ]
        if not complete:
            return super().__torch_function__(func, types, *arguments)
        in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        if in_place and not isinstance(args[0], LocalShard):
            raise ValueError(_mixing_message(name, args, "a whole tensor cannot take a share in"))
        try:
            positional, named = tree_map(cls._sum_gradient_of, arguments)
            return super().__torch_function__(func, types, positional, named)
        except (RuntimeError, IndexError) as error:
            if out_of_memory(error):
                raise
            raise ValueError(
                _mixing_message(name, (*args, *(kwargs or {}).values()), str(error))
            ) from error

    @classmethod
    def _sum_gradient_of(cls, value: object) -> object:
        """Return a complete tensor with its gradient summed over ranks; other values unchanged."""
        if not isinstance(value, Tensor) or isinstance(value, LocalShard | DTensor):
            return value
        if not (value.requires_grad and torch.is_grad_enabled()):
            return value
        return _SumGradients.apply(value, cls.group)


# Results that do not depend on the values of a share are no shares.
CONSTANT = (
    *(f"{kind}_like" for kind in ("empty", "full", "ones", "zeros")),
    *(f"new_{kind}" for kind in ("empty", "full", "ones", "zeros", "tensor")),
)


class _SumGradients(torch.autograd.Function):
    """The identity, with a gradient that is the sum of the ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, whole: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = _unmarked(gradient).clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total, None


def _unmarked(tensor: Tensor) -> Tensor:
    if not isinstance(tensor, LocalShard):
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(Tensor)


@dataclass(frozen=True)
class _CheckInput:
    """A forward hook that checks the input of a planned layer.

    Args:
        width: of a rank's share of a row-wise layer's inputs; None for a column-wise layer, which
            takes complete inputs.
    """

    name: str
    width: int | None = None

    def __call__(self, layer: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        first = given[0]
        if self.width is None and isinstance(first, LocalShard):
            raise ValueError(
                f"plan_tensor: {self.name} is colwise, but its input is split already; make the "
                "layer that closes the split before it rowwise"
            )
        if self.width is not None and first.shape[-1] != self.width:
            raise ValueError(
                f"plan_tensor: {self.name} is rowwise, and each rank should give it {self.width} "
                f"inputs, its share, but it gets {first.shape[-1]}; the layer before it has to be "
                "colwise, and a weight with a number a head has to be named as colwise too"
            )
        return (_unmarked(first), *given[1:])


def _refuse_shares(model: nn.Module, given: object, found: object) -> None:
    if any(isinstance(leaf, LocalShard) for leaf in tree_leaves(found)):
        raise ValueError(
            "plan_tensor: what the model returns is one rank's share of a colwise layer's outputs; "
            "name the linear layer that brings them together as rowwise, or leave both out"
        )


def _mixing_message(name: str, given: Iterable[object], said: str) -> str:
    """Say that a share and a complete tensor do not fit together, and where."""
    shapes = {True: "", False: ""}
    for item in tree_leaves(given):
        if isinstance(item, Tensor):
            shapes[isinstance(item, LocalShard)] += f" {tuple(item.shape)}"
    internal_paths = (__file__, torch.__path__[0])
    frames = [
        item
        for item in traceback.extract_stack()
        if not item.filename.startswith(internal_paths) and item.name != "__torch_function__"
    ]
    return (
        f"tensor parallelism: {name} in {frames[-1].filename}:{frames[-1].lineno} meets one rank's "
        "share"
        f"{shapes[True]} of a layer that plan_tensor splits, and a whole tensor{shapes[False]}: "
        f"{said}. A parameter with a number a head, or an nn.Embedding of them, can be split too: "
        "let plan_tensor name it as colwise. What needs all heads at once (a norm over them, say) "
        "cannot be between a colwise layer and a rowwise one: leave these layers out of the plan, "
        "or choose the strategy fsdp"
    )


@torch.no_grad()
def check_gradients(model: nn.Module, device: torch.device) -> None:
    """Check that ranks with the same weight have computed the same gradient for it.

    Shares are tracked through torch's functions. A kernel of another library hides them, which
    could leave a rank with only its part of a gradient; code that depends on the rank could leave
    it with no gradient.

    Raises:
        ValueError: the gradients differ; raised on all ranks.
    """
    # Weights without a gradient here are included: they may have one on other ranks, and all ranks
    # must send equally many numbers.
    replicated = {
        name: weight
        for name, weight in model.named_parameters()
        if weight.requires_grad and _replicas_of(weight) is not None
    }
    if not replicated:
        return
    group = _replicas_of(next(iter(replicated.values())))
    fingerprints = torch.stack(
        [_fingerprint(weight.grad).to(device) for weight in replicated.values()]
    )
    maxima, minus_minima = fingerprints.clone(), -fingerprints
    dist.all_reduce(maxima, dist.ReduceOp.MAX, group=group)
    dist.all_reduce(minus_minima, dist.ReduceOp.MAX, group=group)
    spread, largest = maxima + minus_minima, maxima[:, 1]
    if names := _selected_names(replicated, spread[:, 0] > 0):
        raise ValueError(
            f"tensor parallelism: some ranks found a gradient of {names}, and others found none, "
            "so their weights would differ from now on; use it in the loss of every rank, or of "
            "none (do not ask for the rank in compute_losses or forward), or choose ddp"
        )
    spread = spread[:, 1:].amax(dim=1)
    eps = max(torch.finfo(local_part(weight).dtype).eps for weight in replicated.values())
    # Parts of a gradient differ by tens of percent; sums in another order, in 16 bits, by a few.
    wrong = (spread > 0.1 * largest) & (spread > 16 * eps * largest.max()) & spread.isfinite()
    if names := _selected_names(replicated, wrong):
        raise ValueError(
            f"tensor parallelism: ranks found different gradients of {names}, which "
            "each has as a whole; these are used on a rank's share of a layer by code that torch "
            "does not see. Leave the layers around them out of plan_tensor, or choose fsdp"
        )


def _fingerprint(gradient: Tensor | None) -> Tensor:
    """Return whether there is a gradient, its norm, and its sum weighted by position."""
    if gradient is None:
        return torch.zeros(3, dtype=torch.float64)
    values = local_part(gradient).double().flatten()
    position_weights = torch.arange(len(values), device=values.device) % 7 - 3.0
    present = torch.ones((), dtype=values.dtype, device=values.device)
    return torch.stack([present, values.norm(), (values * position_weights).sum() / 2])


def _selected_names(held: Iterable[str], chosen: Tensor) -> str:
    return ", ".join(name for name, selected in zip(held, chosen.tolist(), strict=True) if selected)


@torch.no_grad()
def sync_replicated(state: TrainingState, device: torch.device) -> None:
    """Give all ranks the first rank's values of replicated weights and optimizer state.

    All ranks compute these values, equally except for kernels that sum in any order, as on GPUs.
    """
    for weight in state.model.parameters():
        if weight.requires_grad and (group := _replicas_of(weight)) is not None:
            state_values = state.optimizer.state.get(weight, {}).values()
            for tensor in (weight, *state_values):
                if isinstance(tensor, DTensor):
                    first = local_part(tensor).to(device)  # offloaded values are on the CPU
                    dist.broadcast(first, group_src=0, group=group)
                    local_part(tensor).copy_(first)


def _replicas_of(weight: Tensor) -> dist.ProcessGroup | None:
    """Return the group of ranks that all have this weight; None if they split it."""
    if not isinstance(weight, DTensor):
        return None
    mesh = weight.device_mesh  # its last dimension is that of the tensor group
    return mesh.get_group(mesh.ndim - 1) if weight.placements[-1].is_replicate() else None


@dataclass
class RankGenerators:
    """Random numbers that differ between ranks while a module draws for its share of a layer.

    Elsewhere all ranks draw the same numbers, so that complete tensors stay equal on them.
    """

    rank: int
    kept: list[Tensor] = field(default_factory=list)  # generators' states before the module ran

    def attach(self, module: nn.Module) -> None:
        """Hook the module."""
        module.register_forward_pre_hook(self._before)
        module.register_forward_hook(self._after, always_call=True)

    def _before(self, module: nn.Module, given: tuple[Tensor, ...]) -> None:
        if module.training:
            device = given[0].device
            seed = int(torch.randint(2**62, ()))
            self.kept = [torch.get_rng_state()]
            if device.type == "cuda":
                self.kept.append(torch.cuda.get_rng_state(device))
            torch.manual_seed(seed + self.rank)

    def _after(self, module: nn.Module, given: tuple[Tensor, ...], found: Tensor) -> None:
        if self.kept:
            torch.set_rng_state(self.kept[0])
            if len(self.kept) > 1:
                torch.cuda.set_rng_state(self.kept[1], given[0].device)
            self.kept = []


def _replicate(
    model: nn.Module, mesh: DeviceMesh, parameters: set[str], share: type[LocalShard]
) -> None:
    """Turn each parameter that is no DTensor into one: split by rows, or replicated on all ranks.

    Replicas are equal without communication, since ranks build the model from equal seeds.

    Args:
        parameters: names of the parameters that are split.
    """
    converted: dict[Tensor, Parameter] = {}
    own_names: dict[nn.Module, list[str]] = {}
    for prefix, module in model.named_modules():
        plain = [
            (name, weight)
            for name, weight in module.named_parameters(recurse=False, remove_duplicate=False)
            if not isinstance(weight, DTensor)
        ]
        for name, weight in plain:
            if weight not in converted:
                full_name = f"{prefix}.{name}" if prefix else name
                converted[weight] = Parameter(
                    _as_dtensor(weight.data, mesh, full_name in parameters), weight.requires_grad
                )
            module.register_parameter(name, converted[weight])
        own_names[module] = [name for name, _ in plain]
    for module in own_names:
        if any(own_names[inner] for inner in module.modules()):
            _use_local_tensors(module, share, own_names[module])


def _as_dtensor(whole: Tensor, mesh: DeviceMesh, by_rows: bool) -> DTensor:
    if not by_rows:
        return DTensor.from_local(whole, mesh, [Replicate()], run_check=False)
    shard = whole.chunk(mesh.size())[mesh.get_local_rank()].clone()
    return DTensor.from_local(shard, mesh, [Shard(0)], run_check=False)


def _use_local_tensors(module: nn.Module, share: type[LocalShard], names: Sequence[str]) -> None:
    """Let the module's forward see plain tensors and shares in place of DTensors.

    Those of the modules in it too: it may read their weights without calling them, as attention
    does with its projection, and language models with their positions.

    Args:
        names: the module's own weights that are to be seen so; layers that torch splits compute
            with DTensors.
    """
    original_class = type(module)

    def forward(self: nn.Module, *given: object, **named: object) -> object:
        with _local_parameters(self, share):
            return original_class.forward(self, *given, **named)

    changes = {"forward": forward, "local_names": names}
    module.__class__ = type(original_class.__name__, (original_class,), changes)


@contextmanager
def _local_parameters(module: nn.Module, share: type[LocalShard]) -> Iterator[None]:
    distributed: list[tuple[nn.Module, str, Any]] = [
        (inner, name, weight)
        for inner in _gathered_with(module)
        for name in getattr(type(inner), "local_names", ())
        if isinstance(weight := inner._parameters[name], DTensor)
    ]
    # Not by setattr, which takes nothing but parameters under a parameter's name.
    for inner, name, weight in distributed:
        local = local_part(weight)
        if weight.placements[-1].is_shard():
            local = share.marked(inner, (), local)
        inner._parameters[name] = local  # type: ignore[assignment]
    try:
        yield
    finally:
        for inner, name, weight in distributed:
            inner._parameters[name] = weight


def _gathered_with(module: nn.Module) -> Iterator[nn.Module]:
    """Yield a module and those in it, without those that FSDP gathers when they are called."""
    yield module
    for inner in module.children():
        if not isinstance(inner, FSDPModule):
            yield from _gathered_with(inner)
