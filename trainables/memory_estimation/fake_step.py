"""A training step of one rank on tensors without data, by the strategy's own code where possible.

Collectives go to a process group that does nothing, so one process stands for rank 0 of many,
which is the rank with the largest share.

Sources of what each strategy keeps: Rajbhandari et al., ZeRO (2020), sections 3 and 5; Zhao et al.,
PyTorch FSDP (2023), section 4.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.optim import Optimizer
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainables.data import Batch
from trainables.memory_estimation.equal_blocks import FEWEST, equal_blocks, extrapolate, shorten
from trainables.memory_estimation.kernels import device_kernels
from trainables.memory_estimation.memory_tracker import (
    CannotForecast,
    MemoryBreakdown,
    MemoryTracker,
)
from trainables.memory_estimation.meta_model import meta_model, to_fake
from trainables.optim.averaging import Ema
from trainables.optim.chained import turns_of
from trainables.parallel.averaging import message_bytes
from trainables.parallel.strategy import Strategy, choose
from trainables.task import Task
from trainables.trainer.fit import build_optimizer
from trainables.training import Training
from trainables.worker import Worker


def run_fake_step(
    task: Task, training: Training, ranks: int, batch: Batch, gpu: bool
) -> MemoryBreakdown:
    """Return the memory of an update of a rank on a micro-batch.

    A model of many equal blocks is run with a few of them.

    Raises:
        CannotForecast: the task reads values of tensors; the message says where.
        ValueError: the strategy does not support the model.
    """
    run = partial(_run_with_blocks, task, training, ranks, batch, gpu)
    number = len(equal_blocks(meta_model(task, fake_rank(training, ranks).training)))
    few = number >= FEWEST and training.traits.equal_shares
    return (extrapolate(run, number) if few else None) or run(None)


def _run_with_blocks(
    task: Task, training: Training, ranks: int, batch: Batch, gpu: bool, depth: int | None
) -> MemoryBreakdown:
    """Run one update of a rank on a micro-batch: forward, backward, exchange, optimizer step.

    The peak is the largest number of bytes alive at one moment: activations are freed while
    gradients appear, and operations need workspace. So it is found by tracking every operation,
    not by adding up. The optimizer's state exists from the beginning, as it does from a trial's
    second update on; with several micro-batches gradients do too, as from the second one on.

    Args:
        batch: the samples of one micro-batch of a rank.
        gpu: whether to estimate a GPU's memory, or that of a process without a GPU.
        depth: the number of equal blocks that the model keeps; None: all.
    """
    worker, mode = fake_rank(training, ranks), FakeTensorMode(allow_non_fake_inputs=True)
    with _fake_process_group(ranks):
        strategy = choose(worker, task.plan_tensor)
        _ = strategy.mesh  # made with real tensors
        bare = meta_model(task, worker.training)
        averaged = [weight for weight in bare.parameters() if weight.requires_grad]
        if depth is not None:
            shorten(bare, depth)
        bare = to_fake(bare, mode)
        with mode:
            model = strategy.shard(bare)
            optimizer = strategy.setup_optimizer(optimizer_of(task, model, training, gpu))
            fake_step = FakeStep(task, strategy, model, optimizer, gpu, message_bytes(averaged))
            with (
                explain_errors(),
                device_kernels(training, gpu),
                MemoryTracker(mode).tracking() as tracker,
            ):
                return fake_step.run(tracker, tuple(mode.from_tensor(column) for column in batch))


def fake_rank(training: Training, ranks: int) -> Worker:
    """Return rank 0 of `ranks`, with compilation off: compiled code cannot be tracked."""
    lone_worker = Worker.alone(training=replace(training, compile="none"), folder=Path())
    return replace(lone_worker, world_size=ranks)


@dataclass
class FakeStep:
    """A model and an optimizer without data, ready for a fake training step."""

    task: Task
    strategy: Strategy
    model: nn.Module
    optimizer: Optimizer
    gpu: bool
    message: int  # bytes needed for averaging all gradients or weights, see parallel/averaging.py
    average: Ema | None = None
    buckets: Sequence[Tensor] = ()

    def run(self, tracker: MemoryTracker, batch: Batch) -> MemoryBreakdown:
        """Run the updates while `tracker` counts their memory."""
        parameters = tracker.enter(self.model.parameters(), "parameters")
        buffers = tracker.enter(self.model.buffers(), "buffers")
        tracker.enter(batch, "samples")
        averages, exchange = self._create_averaged_weights(tracker), self._allocate_buckets(tracker)
        self._create_optimizer_state(tracker)
        tracker.forget_peak()
        gradients, activations = self._compute_gradients(tracker, batch)
        self._run_optimizer(tracker)
        return MemoryBreakdown(
            parameters=parameters,
            gradients=gradients,
            optimizer=tracker.held("optimizer") + averages,
            activations=activations,
            buffers=buffers,
            exchange=exchange,
            peak=tracker.fullest.total,
            fullest=tracker.fullest.moment,
            events=tracker.events,
        )

    @property
    def _trained_weights(self) -> list[nn.Parameter]:
        return [weight for weight in self.model.parameters() if weight.requires_grad]

    @property
    def _gradients_are_copied(self) -> bool:
        """Whether gradients exist beside DDP's buckets, as they do in an order's first updates."""
        training = self.strategy.worker.training
        agreeing = not (training.static_graph or training.sync_batchnorm)
        return "bucket_cap_mb" in self.strategy.traits.options and agreeing

    def _create_optimizer_state(self, tracker: MemoryTracker) -> None:
        """Let the optimizer create its state; steps before that need no more than those after."""
        for weight in self._trained_weights:
            weight.grad = torch.empty_like(weight)
        tracker.enter(
            [parameter.grad for parameter in self._trained_weights if parameter.grad is not None],
            "gradients",
        )
        self._run_optimizer(tracker)

    def _clear_gradients(self) -> None:
        for weight in self._trained_weights:
            weight.grad = None

    def _create_averaged_weights(self, tracker: MemoryTracker) -> int:
        decay, before = self.strategy.worker.training.ema, tracker.total
        if decay is not None:
            self.average = Ema(self.model, decay)
        return tracker.total - before

    def _allocate_buckets(self, tracker: MemoryTracker) -> int:
        """Allocate DDP's buckets and return their bytes.

        On a CPU nothing is written to them at first, so they take no memory there.
        """
        if not (self.gpu and self._gradients_are_copied):
            return 0
        self.buckets = [torch.empty_like(weight) for weight in self._trained_weights]
        return tracker.enter(self.buckets, "gathered")

    def _compute_gradients(self, tracker: MemoryTracker, batch: Batch) -> tuple[int, int]:
        """Return the bytes of the gradients, and of the activations kept for computing them."""
        if self.strategy.worker.training.accumulate == 1:
            self._clear_gradients()
            activations = self._forward_backward(tracker, batch)
        elif self._sharded:  # gradients of micro-batches before the last are not sharded
            self._clear_gradients()
            with self.strategy.no_sync(self.model):
                self._forward_backward(tracker, batch)
            activations = self._forward_backward(tracker, batch)
        else:
            activations = self._forward_backward(tracker, batch)
        if self._gradients_are_copied:
            torch.empty(self.message, dtype=torch.uint8)
        gradients = [weight.grad for weight in self.model.parameters() if weight.grad is not None]
        return tracker.enter(gradients, "gradients"), activations

    def _forward_backward(self, tracker: MemoryTracker, batch: Batch) -> int:
        tracker.moment = "forward"
        before = tracker.held("others")
        with self.strategy.autocast():
            losses = self.task.compute_losses(self.model, batch)
        # Weights of a sharded model are the gathered ones now.
        tracker.enter(self.model.parameters(), "gathered" if self._sharded else "parameters")
        activations = tracker.held("others") - before
        tracker.moment = "backward"
        # Not torch.autograd.backward: function modes are off inside it (torch 2.13), so recomputed
        # operations would use other kernels than the first time.
        torch.autograd.Variable._execution_engine.run_backward(
            (losses,),
            (torch.ones_like(losses),),
            False,
            False,
            (),
            allow_unreachable=True,
            accumulate_grad=True,
        )
        return activations

    @property
    def _sharded(self) -> bool:
        return self.strategy.traits.gathers_blocks

    def _run_optimizer(self, tracker: MemoryTracker) -> None:
        tracker.moment = "optimizer"
        self.optimizer.step()
        values = (value for state in self.optimizer.state.values() for value in state.values())
        tracker.enter((value for value in values if isinstance(value, Tensor)), "optimizer")
        if self.average is not None:
            self.average.update()
        if self.strategy.traits.averages_weights:
            torch.empty(self.message, dtype=torch.uint8)


def optimizer_of(task: Task, model: nn.Module, training: Training, gpu: bool) -> Optimizer:
    """Return the optimizer as torch runs it on the device: `foreach` is the default on GPUs."""
    optimizer = build_optimizer(task, model, training)
    if turns_of(optimizer):
        raise CannotForecast("the task's optimizers take turns, each with a pass; measure instead")
    for group in optimizer.param_groups:
        if gpu and "foreach" in group and group["foreach"] is None and not group.get("fused"):
            group["foreach"] = True
    optimized = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for weight in model.parameters():
        weight.requires_grad_(id(weight) in optimized and weight.requires_grad)
    return optimizer


@contextmanager
def _fake_process_group(ranks: int) -> Iterator[None]:
    """Provide a process group of `ranks` ranks in which nothing is sent.

    Raises:
        CannotForecast: this process already belongs to a process group.
    """
    if ranks == 1:
        yield
        return
    if dist.is_initialized():
        raise CannotForecast("this process is one of a group of ranks; forecast in another one")
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def explain_errors() -> Iterator[None]:
    """Turn errors of tasks that read values of fake tensors into CannotForecast, with a remedy."""
    try:
        yield
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise CannotForecast(
            f"the task's shapes or numbers depend on values ({error.func}), which a forecast does "
            "not have; measure instead"
        ) from error
    except RuntimeError as error:
        if "meta" not in f"{error}":
            raise
        raise CannotForecast(
            "the task computes with a tensor that build_model made and that is neither a parameter "
            f"nor a buffer of a module ({f'{error}'.splitlines()[0]}); give it to its module by "
            "register_buffer, so that it goes where the model goes, or measure"
        ) from error
