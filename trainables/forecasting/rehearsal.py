"""An update of a rank on tensors without data, by the strategy's own code where it has some.

What a strategy exchanges goes to a process group that does nothing, so one process stands for rank
0 of many, which is the rank that has most.

Sources of what each keeps: Rajbhandari et al., ZeRO (2020), sections 3 and 5; Zhao et al., PyTorch
FSDP (2023), section 4.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.optim import Optimizer
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainables.data import Batch
from trainables.fitting.fit import build_optimizer
from trainables.forecasting.kernels import chosen
from trainables.forecasting.ledger import Ledger, Moment, NotForeseen
from trainables.forecasting.outline import faked, outline
from trainables.optim.averaging import Ema
from trainables.parallel.averaging import average
from trainables.parallel.fsdp import Fsdp
from trainables.parallel.strategies import Strategy, choose
from trainables.parallel.tensor import TensorParallel, split
from trainables.training import Training
from trainables.worker import Worker

if TYPE_CHECKING:
    from trainables.task import Task

COPIES = ("ddp", "zero1")  # whose buckets of gradients are there beside the gradients


@dataclass(frozen=True)
class Course:
    """What a rank takes in the course of its updates, in bytes."""

    parameters: int
    gradients: int
    optimizer: int  # its state, and averaged weights
    activations: int  # that a forward pass leaves for its backward pass
    buffers: int
    exchange: int  # of buckets in which gradients travel
    peak: int  # at the fullest moment; not the sum: gradients grow while activations go
    fullest: Moment


def rehearse(task: "Task", training: Training, ranks: int, batch: Batch, gpu: bool) -> Course:
    """An update of a rank on a micro-batch: forward, backward, exchange, the optimizer's step.

    The peak is the most that is alive at any one moment: activations are let go while gradients
    appear, and operations need room while they work. So it is found by following them all, not by
    adding up. The optimizer's state is there from the beginning, as it is from a trial's second
    update on; with several micro-batches so are gradients, as from the second of them on.

    Args:
        batch: what a rank learns from in one micro-batch.
        gpu: whether to foresee a GPU's memory, or that of a process without one.

    Raises:
        NotForeseen: the task needs numbers; the message says where.
        ValueError: the strategy does not take the model.
    """
    worker, mode = worker_of(training, ranks), FakeTensorMode(allow_non_fake_inputs=True)
    with _pretended(ranks):
        strategy = choose(worker, task.plan_tensor)
        shard, bare = _sharding(strategy), faked(outline(task, worker.training), mode)
        with mode:
            model = shard(bare)
            optimizer = strategy.adopt(optimizer_of(task, model, training, gpu))
            rehearsal = Rehearsal(task, strategy, model, optimizer, gpu)
            with explained(), chosen(training, gpu), Ledger(mode).kept() as ledger:
                return rehearsal.run(ledger, tuple(mode.from_tensor(column) for column in batch))


def worker_of(training: Training, ranks: int) -> Worker:
    """Rank 0 of so many; nothing is compiled, since what is compiled cannot be followed."""
    alone = Worker.alone(training=replace(training, compile="none"), folder=Path())
    return replace(alone, world_size=ranks)


@dataclass
class Rehearsal:
    """A model and an optimizer without data, about to be trained."""

    task: "Task"
    strategy: Strategy
    model: nn.Module
    optimizer: Optimizer
    gpu: bool
    average: Ema | None = None
    buckets: Sequence[Tensor] = ()

    def run(self, ledger: Ledger, batch: Batch) -> Course:
        """All updates, in an account of their memory."""
        parameters = ledger.enter(self.model.parameters(), "parameters")
        buffers = ledger.enter(self.model.buffers(), "buffers")
        ledger.enter(batch, "samples")
        averages, exchange = self._average(ledger), self._exchange(ledger)
        self._first_step(ledger)
        gradients, activations = self._gradients(ledger, batch)
        self._step(ledger)
        return Course(
            parameters=parameters,
            gradients=gradients,
            optimizer=ledger.held("optimizer") + averages,
            activations=activations,
            buffers=buffers,
            exchange=exchange,
            peak=ledger.peak,
            fullest=ledger.fullest,
        )

    @property
    def _trained(self) -> list[nn.Parameter]:
        return [each for each in self.model.parameters() if each.requires_grad]

    @property
    def _copies(self) -> bool:
        """Whether gradients are averaged beside DDP's buckets, as in an order's first updates."""
        training = self.strategy.worker.training
        agreeing = not (training.static_graph or training.sync_batchnorm)
        return training.strategy in COPIES and agreeing and self.strategy.worker.world_size > 1

    def _first_step(self, ledger: Ledger) -> None:
        """Let the optimizer make its state; what came before it took no more than what follows."""
        for weight in self._trained:
            weight.grad = torch.empty_like(weight)
        ledger.enter([each.grad for each in self._trained if each.grad is not None], "gradients")
        self._step(ledger)

    def _forget(self) -> None:
        for weight in self._trained:
            weight.grad = None

    def _average(self, ledger: Ledger) -> int:
        decay, before = self.strategy.worker.training.ema, ledger.total
        if decay is not None:
            self.average = Ema(self.model, decay)
        return ledger.total - before

    def _exchange(self, ledger: Ledger) -> int:
        """DDP's buckets; on a CPU nobody writes to them at first, so they take no memory there."""
        if not (self.gpu and self._copies):
            return 0
        self.buckets = [torch.empty_like(each) for each in self._trained]
        return ledger.enter(self.buckets, "gathered")

    def _gradients(self, ledger: Ledger, batch: Batch) -> tuple[int, int]:
        """Bytes of the gradients, and of what the forward pass left for them."""
        if self.strategy.worker.training.accumulate == 1:
            self._forget()
            kept = self._pass(ledger, batch)
        elif self._sharded:  # gradients of micro-batches before the last are whole
            self._forget()
            with self.strategy.local(self.model):
                self._pass(ledger, batch)
            kept = self._pass(ledger, batch)
        else:
            kept = self._pass(ledger, batch)
        if self._copies:
            average([each.grad for each in self._trained if each.grad is not None])
        held = [each.grad for each in self.model.parameters() if each.grad is not None]
        return ledger.enter(held, "gradients"), kept

    def _pass(self, ledger: Ledger, batch: Batch) -> int:
        ledger.moment = "forward"
        before = ledger.held("others")
        outputs = self._outputs(batch)
        # Of a model whose weights are dealt out, those that are gathered now.
        ledger.enter(self.model.parameters(), "gathered" if self._sharded else "parameters")
        kept = ledger.held("others") - before
        ledger.moment = "backward"
        first = tuple(torch.ones_like(each) for each in outputs)
        # Not torch.autograd.backward, in which no mode for functions is at work (torch 2.13): what
        # is computed again would be by other kernels than at first.
        torch.autograd.Variable._execution_engine.run_backward(
            tuple(outputs), first, False, False, (), allow_unreachable=True, accumulate_grad=True
        )
        return kept

    def _outputs(self, batch: Batch) -> list[Tensor]:
        """What the backward pass begins with."""
        with self.strategy.autocast():
            return [self.task.compute_losses(self.model, batch)]

    @property
    def _sharded(self) -> bool:
        return isinstance(self.strategy, Fsdp)

    def _step(self, ledger: Ledger) -> None:
        ledger.moment = "optimizer"
        self.optimizer.step()
        ledger.enter(self._state(), "optimizer")
        if self.average is not None:
            self.average.update()
        if self.strategy.worker.training.strategy == "local_sgd":
            average(list(self.model.parameters()))

    def _state(self) -> list[Tensor]:
        kept = (each for state in self.optimizer.state.values() for each in state.values())
        return [each for each in kept if isinstance(each, Tensor)]


def optimizer_of(task: "Task", model: nn.Module, training: Training, gpu: bool) -> Optimizer:
    """The optimizer, as torch runs it on the device: on GPUs all weights at once by default."""
    found = build_optimizer(task, model, training)
    for group in found.param_groups:
        if gpu and "foreach" in group and group["foreach"] is None and not group.get("fused"):
            group["foreach"] = True
    held = {id(each) for group in found.param_groups for each in group["params"]}
    for weight in model.parameters():
        weight.requires_grad_(id(weight) in held and weight.requires_grad)
    return found


def _sharding(strategy: Strategy) -> Callable[[nn.Module], nn.Module]:
    """What deals a model out; meshes of ranks are made with real numbers."""
    if isinstance(strategy, Fsdp):
        _ = strategy.mesh
    if isinstance(strategy, TensorParallel):
        ranks = strategy.worker.world_size
        mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("tensor",))
        return lambda model: split(model, strategy.plan(model), mesh)
    return strategy.shard


@contextmanager
def _pretended(ranks: int) -> Iterator[None]:
    """A process group of so many ranks, in which nothing is exchanged.

    Raises:
        NotForeseen: this process is a rank already.
    """
    if ranks == 1:
        yield
        return
    if dist.is_initialized():
        raise NotForeseen("this process is one of a group of ranks; forecast in another one")
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def explained() -> Iterator[None]:
    """Say what a task does that cannot be followed without numbers."""
    try:
        yield
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise NotForeseen(
            f"the task's shapes or numbers depend on values ({error.func}), which a forecast does "
            "not have; measure instead"
        ) from error
    except RuntimeError as error:
        if "meta" not in f"{error}":
            raise
        raise NotForeseen(
            "the task computes with a tensor that build_model made and that is neither a parameter "
            f"nor a buffer of a module ({f'{error}'.splitlines()[0]}); give it to its module by "
            "register_buffer, so that it goes where the model goes, or measure"
        ) from error
