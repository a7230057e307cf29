"""Data parallelism: a copy of the model on every rank, with gradients averaged as they appear.

Sources: Li et al., PyTorch Distributed (2020); powersgd, Vogels, Karimireddy & Jaggi, PowerSGD
(2019), Algorithm 1, whose rank 4 kept the accuracy of every model in their section 4.
"""

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo
from torch import Tensor, nn
from torch.distributed import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from trainables.parallel.averaging import average
from trainables.parallel.strategy import Group
from trainables.training_state.loop_state import TrainingState
from trainables.training_state.micro_batch_halving import AgreedOutOfMemory

# The constructor of DistributedDataParallel would import torch._dynamo: 800 modules, some of which
# keep all frames of their import in a reference cycle (torch 2.13). The first model and its process
# group then outlived their order, and one exit in fifteen ended in "terminate called without an
# active exception". So this file imports it, and collects the cycle before there is a model.
gc.collect()

POWER_RANK = 4
# The hook needs 2: DDP reorders its buckets after the first.
POWER_START = 2  # first updates, whose gradients are sent uncompressed


class CountingWrapper(nn.Module):
    """A model and the tally of an update's losses, which is exchanged as one more gradient.

    A message of its own would cost an update of a small model a tenth of its time on two ranks.

    Args:
        travels: whether the tally is sent so; with compressed gradients it would be rounded, and
            useless.
    """

    def __init__(self, model: nn.Module, travels: bool) -> None:
        super().__init__()
        self.model = model
        first_trained = next(weight for weight in model.parameters() if weight.requires_grad)
        exact = torch.promote_types(first_trained.dtype, torch.float32)  # a bucket holds one format
        self.tally = nn.Parameter(torch.zeros(2, dtype=exact, device=first_trained.device), travels)

    def forward(self, *args: Any, **named: Any) -> Any:
        return self.model(*args, **named)


@dataclass
class Weights:
    """The weights whose gradients DDP exchanges, and whether every update uses all of them."""

    trained: list[nn.Parameter] = field(default_factory=list)
    missed: bool = False  # whether a weight got no gradient in some update of this rank
    uneven: bool = False  # whether that happened on some rank, as all ranks know


@dataclass(frozen=True)
class Ddp(Group):
    """PyTorch's DistributedDataParallel; a Strategy.

    Parameters may be unused in an update. DDP would raise then, and with find_unused_parameters it
    would traverse the graph in each pass, from all outputs of the model, even those that no loss
    uses; this class does neither.
    """

    weights: Weights = field(default_factory=Weights, compare=False)

    def wrap(self, model: nn.Module) -> nn.Module:
        device, training = self.worker.device, self.worker.training
        self.weights.trained = [weight for weight in model.parameters() if weight.requires_grad]
        wrapped = DistributedDataParallel(
            CountingWrapper(model, training.gradient_compression == "none"),
            device_ids=[device] if device.type == "cuda" else None,
            bucket_cap_mb=training.bucket_cap_mb,
            static_graph=training.static_graph,
            gradient_as_bucket_view=True,
        )
        self._register_compression(wrapped)
        return wrapped

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        if self.worker.training.static_graph:
            return nullcontext()  # no_sync ends in an internal error (torch 2.13)
        return _as_ddp(model).no_sync()

    def reduce_loss_sum(self, tally: Tensor, model: nn.Module) -> Tensor:
        carried = _as_ddp(model).module.tally.grad
        if carried is None:
            return super().reduce_loss_sum(tally, model)
        total: Tensor = carried.to(tally.dtype) * self.worker.world_size
        total[1].round_()  # the mean over three ranks is not exact
        return total

    def begin_update(self, model: nn.Module, careful: bool) -> Tensor | None:
        wrapped = _as_ddp(model)
        carrier: nn.Parameter = wrapped.module.tally
        carrier.grad = None
        if not self._exchanges_late(careful):
            return carrier if carrier.requires_grad else None
        # DDP would share buffers in the first forward pass, which a rank may fail to reach.
        self.share_buffers(wrapped)
        wrapped.require_forward_param_sync = False
        return None

    def micro_batch(
        self, model: nn.Module, last: bool, careful: bool
    ) -> AbstractContextManager[None]:
        if not last or self._exchanges_late(careful):
            return self.no_sync(model)
        if self.worker.training.static_graph:  # DDP learns which weights get no gradient
            return nullcontext()
        return self._filling_in()

    def agrees_on_memory(self, careful: bool) -> bool:
        # DDP learns a static graph from its first exchange; sync_batchnorm exchanges in each pass.
        training = self.worker.training
        return careful and not (training.static_graph or training.sync_batchnorm)

    def end_update(self, model: nn.Module, careful: bool, failure: Exception | None) -> None:
        if not self._exchanges_late(careful):
            return
        any_failed = torch.tensor(float(failure is not None), device=self.worker.device)
        if self.agrees_on_memory(careful) and self.all_reduce_max(any_failed):
            cause = failure or "on another rank"
            raise AgreedOutOfMemory(f"out of memory: {cause}") from failure
        self._average_gradients()

    def sync_replicas(self, state: TrainingState) -> None:
        missed = torch.tensor(float(self.weights.missed), device=self.worker.device)
        self.weights.uneven |= bool(self.all_reduce_max(missed))

    def _exchanges_late(self, careful: bool) -> bool:
        """Return whether ranks exchange gradients after all passes, in place of DDP."""
        training = self.worker.training
        # DDP rearranges its buckets after an order's first update, and with three or more ranks the
        # bits of a gradient depend on its place in the bucket: a resumed trial would differ.
        uneven = self.weights.uneven and training.gradient_compression == "none"
        return self.agrees_on_memory(careful) or training.deterministic or uneven

    @contextmanager
    def _filling_in(self) -> Iterator[None]:
        """Let DDP exchange gradients while they appear, in the last pass.

        DDP waits for the gradient of each weight, so weights that the pass does not use get a
        gradient of 0 after it. Ranks agree on these weights at the end of an epoch.
        """
        trained = self.weights.trained
        grads_before = [weight.grad for weight in trained]
        yield
        # After DDP has exchanged a gradient, that is a view of DDP's bucket.
        pairs = zip(trained, grads_before, strict=True)
        if unused := [weight for weight, gradient in pairs if weight.grad is gradient]:
            torch.autograd.backward(unused, [torch.zeros_like(weight) for weight in unused])
            self.weights.missed = True

    def _average_gradients(self) -> None:
        """Average the gradients of all weights that have one on some rank."""
        weights = self.weights.trained
        grads = [weight.grad for weight in weights]
        has_grad = torch.tensor([grad is not None for grad in grads], dtype=torch.int32)
        in_rows = torch.tensor([grad is not None and grad.is_sparse for grad in grads]).to(
            has_grad.dtype
        )
        flags = self.all_reduce_max(
            torch.stack([has_grad, 1 - has_grad, in_rows]).to(self.worker.device)
        )
        used, unused, sparse = flags.tolist()
        self.weights.uneven |= any(unused)
        gradients = []
        for weight, used_anywhere, rows in zip(weights, used, sparse, strict=True):
            if used_anywhere:
                if weight.grad is None:
                    zeros = torch.zeros_like(weight)
                    weight.grad = zeros.to_sparse(1) if rows else zeros
                gradients.append(weight.grad)
        average(gradients)

    def _register_compression(self, model: DistributedDataParallel) -> None:
        """Compress the gradients that are sent, as the options say.

        Raises:
            ValueError: the ranks' devices cannot do so.
        """
        match self.worker.training.gradient_compression:
            case "fp16":
                model.register_comm_hook(None, default_hooks.fp16_compress_hook)
            case "bf16" if self.worker.device.type != "cuda":
                raise ValueError(
                    "training.gradient_compression is bf16, but only NCCL adds bf16 up, on GPUs; "
                    "choose fp16 or powersgd"
                )
            case "bf16":
                model.register_comm_hook(None, default_hooks.bf16_compress_hook)
            case "powersgd":
                state = powerSGD_hook.PowerSGDState(
                    None, POWER_RANK, start_powerSGD_iter=POWER_START
                )
                one_at_a_time = self.worker.device.type == "cpu"
                hook = _powersgd_one_at_a_time if one_at_a_time else powerSGD_hook.powerSGD_hook
                model.register_comm_hook(state, hook)


def _as_ddp(model: nn.Module) -> DistributedDataParallel:
    if not isinstance(model, DistributedDataParallel):
        raise TypeError(f"model is {type(model).__name__}; wrap it before training")
    return model


def _powersgd_one_at_a_time(
    state: powerSGD_hook.PowerSGDState, bucket: GradBucket
) -> torch.futures.Future[Tensor]:
    """Compress a bucket, and return once all ranks have exchanged it.

    PowerSGD exchanges each bucket three times, from callbacks. Under gloo these run in threads,
    so with several buckets the ranks may call collectives in different orders, and wait forever
    (torch 2.13). NCCL's callbacks run in order.
    """
    future = powerSGD_hook.powerSGD_hook(state, bucket)
    future.wait()
    return future
