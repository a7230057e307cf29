"""A copy of the model on every rank, whose gradients are averaged as they appear.

Sources: Li et al., PyTorch Distributed (2020); powersgd, Vogels, Karimireddy & Jaggi, PowerSGD
(2019), Algorithm 1, whose rank 4 kept the accuracy of every model in their section 4.
"""

import gc
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch._dynamo
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from trainables.fitting.memory import AgreedOutOfMemory
from trainables.parallel.averaging import average
from trainables.parallel.strategies import Group
from trainables.scripts.endings import out_of_memory

if TYPE_CHECKING:
    from trainables.fitting.passes import Passes
    from trainables.fitting.state import TrainingState

# The constructor of DistributedDataParallel would import torch._dynamo: 800 modules, some of which
# keep all frames of their import in a cycle (torch 2.13). The first model and its process group
# then outlived their order, and one exit in fifteen ended in "terminate called without an active
# exception". So the import is ours, and the cycle goes before there is a model.
gc.collect()

POWER_RANK = 4
# The hook needs 2: DDP reorders its buckets after the first.
POWER_START = 2  # updates whose gradients are sent as they are


class Counted(nn.Module):
    """A model and the tally of an update's losses, which travels as one more gradient.

    A message of its own would cost an update of a small model a tenth of its time on two ranks.

    Args:
        travels: whether it does; rounded, it would be of no use.
    """

    def __init__(self, model: nn.Module, travels: bool) -> None:
        super().__init__()
        self.model = model
        like = next(each for each in model.parameters() if each.requires_grad)
        exact = torch.promote_types(like.dtype, torch.float32)  # a bucket holds one format
        self.tally = nn.Parameter(torch.zeros(2, dtype=exact, device=like.device), travels)

    def forward(self, *args: Any, **named: Any) -> Any:
        return self.model(*args, **named)


@dataclass
class Weights:
    """What DDP exchanges gradients of."""

    trained: list[nn.Parameter] = field(default_factory=list)
    missed: bool = False  # whether one had none in some update of this rank
    uneven: bool = False  # whether all ranks know that


@dataclass(frozen=True)
class Ddp(Group):
    """PyTorch's DistributedDataParallel; a Strategy.

    A weight need not get a gradient in each update. DDP would fail without one, or, if told so, go
    through the graph in each pass, from the model's outputs, whether the losses use them or not.
    """

    weights: Weights = field(default_factory=Weights, compare=False)

    def wrap(self, model: nn.Module) -> nn.Module:
        device, training = self.worker.device, self.worker.training
        self.weights.trained = [each for each in model.parameters() if each.requires_grad]
        wrapped = DistributedDataParallel(
            Counted(model, training.compress == "none"),
            device_ids=[device] if device.type == "cuda" else None,
            bucket_cap_mb=training.bucket_mb,
            static_graph=training.static_graph,
            gradient_as_bucket_view=True,
        )
        self._compress(wrapped)
        return wrapped

    def local(self, model: nn.Module) -> AbstractContextManager[None]:
        if self.worker.training.static_graph:
            return nullcontext()  # no_sync ends in an internal error (torch 2.13)
        return _wrapped(model).no_sync()

    def carrier(self, model: nn.Module) -> Tensor | None:
        tally: Tensor = _wrapped(model).module.tally
        return tally if tally.requires_grad else None

    def total(self, tally: Tensor, model: nn.Module) -> Tensor:
        carrier = self.carrier(model)
        if carrier is None or carrier.grad is None:
            return super().total(tally, model)
        total = carrier.grad.to(tally.dtype) * self.worker.world_size
        total[1].round_()  # the mean over three ranks is not exact
        return total

    def backward(
        self, passes: "Passes", parts: Sequence[Tensor], scale: float, careful: bool
    ) -> Tensor:
        training = self.worker.training
        # DDP learns a static graph from its first exchange; batch norms exchange in each pass.
        agreeing = careful and not (training.static_graph or training.sync_batchnorm)
        # DDP puts weights into other buckets after an order's first update, and of three ranks or
        # more a gradient's bits depend on its place in the bucket: a resumed trial would differ.
        uneven = self.weights.uneven and training.compress == "none"
        if not (agreeing or training.deterministic or uneven):
            return self._overlapping(passes, parts, scale)
        # DDP would do it in the first forward pass, which a rank without memory does not reach.
        wrapped = _wrapped(passes.model)
        self.share_buffers(passes.bare)
        wrapped.require_forward_param_sync = False
        tally, failure = torch.zeros(2), None
        with wrapped.no_sync():
            try:
                tally = torch.stack([passes.backward(part, scale) for part in parts]).sum(dim=0)
            except Exception as error:
                if not agreeing or not out_of_memory(error):
                    raise
                failure = error.with_traceback(None)  # which holds the activations
        failed = torch.tensor(float(failure is not None), device=self.worker.device)
        if agreeing and self.worst(failed):
            said = failure or "on another rank"
            raise AgreedOutOfMemory(f"out of memory: {said}") from failure
        self._reduce()
        return tally

    def agree(self, state: "TrainingState") -> None:
        missed = torch.tensor(float(self.weights.missed), device=self.worker.device)
        self.weights.uneven |= bool(self.worst(missed))

    def _overlapping(self, passes: "Passes", parts: Sequence[Tensor], scale: float) -> Tensor:
        """Let DDP exchange gradients while they appear.

        It waits until the last pass has come to each weight, so those that it has passed by get 0
        after it. Ranks agree on such weights when an epoch is over.
        """
        if self.worker.training.static_graph:  # DDP then learns which weights get none
            return super().backward(passes, parts, scale, careful=False)
        trained, carrier = self.weights.trained, self.carrier(passes.model)
        with self.local(passes.model):
            tallies = [passes.backward(part, scale, carrier) for part in parts[:-1]]
        before = [weight.grad for weight in trained]
        tallies.append(passes.backward(parts[-1], scale, carrier))
        # Where DDP has been, the gradient is now a view of its bucket.
        pairs = zip(trained, before, strict=True)
        if idle := [weight for weight, gradient in pairs if weight.grad is gradient]:
            torch.autograd.backward(idle, [torch.zeros_like(weight) for weight in idle])
            self.weights.missed = True
        return tallies[0] if len(parts) == 1 else torch.stack(tallies).sum(dim=0)

    def _reduce(self) -> None:
        """Average the gradients of all weights that have one on some rank."""
        weights = self.weights.trained
        held = [each.grad for each in weights]
        own = torch.tensor([each is not None for each in held], dtype=torch.int32)
        thin = torch.tensor([each is not None and each.is_sparse for each in held]).to(own.dtype)
        told = self.worst(torch.stack([own, 1 - own, thin]).to(self.worker.device))
        used, unused, sparse = told.tolist()
        self.weights.uneven |= any(unused)
        gradients = []
        for weight, anywhere, rows in zip(weights, used, sparse, strict=True):
            if anywhere:
                if weight.grad is None:
                    nothing = torch.zeros_like(weight)
                    weight.grad = nothing.to_sparse(1) if rows else nothing
                gradients.append(weight.grad)
        average(gradients)

    def _compress(self, model: DistributedDataParallel) -> None:
        """Send gradients rounded, as the options say.

        Raises:
            ValueError: the ranks' devices cannot.
        """
        match self.worker.training.compress:
            case "fp16":
                model.register_comm_hook(None, default_hooks.fp16_compress_hook)
            case "bf16" if self.worker.device.type != "cuda":
                raise ValueError(
                    "training.compress is bf16, but only NCCL adds bf16 up, on GPUs; "
                    "choose fp16 or powersgd"
                )
            case "bf16":
                model.register_comm_hook(None, default_hooks.bf16_compress_hook)
            case "powersgd":
                state = powerSGD_hook.PowerSGDState(
                    None, POWER_RANK, start_powerSGD_iter=POWER_START
                )
                model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def _wrapped(model: nn.Module) -> DistributedDataParallel:
    if not isinstance(model, DistributedDataParallel):
        raise TypeError(f"model is {type(model).__name__}; wrap it before training")
    return model
