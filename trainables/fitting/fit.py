"""Train a Task for one order, with the model, optimizer and strategy that its options ask for."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trainables import combinations
from trainables.checkpoints.saver import Saver
from trainables.data import Data
from trainables.fitting import lone, settings
from trainables.fitting import precision as formats
from trainables.fitting.divergence import Guard
from trainables.fitting.loop import Session
from trainables.fitting.measuring import measured
from trainables.fitting.memory import Split
from trainables.fitting.passes import Passes
from trainables.fitting.recompute import recompute
from trainables.fitting.state import Marks, TrainingState
from trainables.fitting.update import Update
from trainables.optim.averaging import Ema
from trainables.optim.building import OptimizerOptions, build
from trainables.optim.schedules import Plateau, scale_lr
from trainables.parallel.strategies import Strategy, choose
from trainables.randomness import derive, preserved, seed_all
from trainables.training import Training
from trainables.watching.clock import Clock
from trainables.watching.gauges import Gauges
from trainables.watching.layers import Layers
from trainables.worker import Worker

if TYPE_CHECKING:
    from trainables.task import Task


def fit(task: "Task", worker: Worker) -> None:
    """Carry out an order; StopTrial passes through."""
    with preserved(), prepare(task, worker) as session:
        session.run()


@contextmanager
def prepare(task: "Task", worker: Worker) -> Iterator[Session]:
    """Build what the order trains, or restore it from the order's checkpoint.

    Raises:
        ValueError: options of the training that exclude each other, or do not suit the task.
    """
    training = worker.training
    combinations.check(training, worker.world_size, worker.nan)
    with settings.applied(training, worker.device), _fresh_compiler(training):
        strategy = choose(worker, task.plan_tensor)
        seed_all(derive(worker.seed, "model"))
        data = _checked(task.load_data())
        if worker.rank == 0 and worker.start is None:
            worker.uses(*data.described(type(task).__name__))
        state = build_state(task, strategy)
        saver = Saver(strategy)
        rates = tuple(group["lr"] for group in state.optimizer.param_groups)
        saver.restore(state)
        if training.compile == "none":
            worker.beat()  # from here on only beats count: a collective that hangs looks busy
        gauges = Gauges(worker)
        passes = build_passes(task, strategy, state, data, gauges.clock)
        update = Update(
            strategy=strategy,
            passes=passes,
            state=state,
            split=Split(training.accumulate * 2**worker.shrink),
            layers=Layers(state.model) if training.watch else None,
        )
        try:
            lone.check(passes, strategy, update.split.parts)
            costs = measured(passes, strategy)
            yield Session(
                task, worker, strategy, passes, update, state, saver, gauges, rates, costs
            )
        finally:
            strategy.close()


def build_state(task: "Task", strategy: Strategy) -> TrainingState:
    """What updates change, as it is when a trial begins."""
    worker, training = strategy.worker, strategy.worker.training
    model = strategy.shard(build_model(task, training, strategy.home))
    optimizer = strategy.adopt(build_optimizer(task, model, training))
    _freeze_others(model, optimizer)
    return TrainingState(
        model=model,
        optimizer=optimizer,
        scaler=formats.scaler(training.precision, worker.device, strategy.overflows),
        average=None if training.ema is None else Ema(model, training.ema),
        plateau=Plateau() if training.schedule == "plateau" else None,
        guard=None if worker.nan == "stop" else Guard(worker.nan),
        marks=Marks.fresh(worker.device),
    )


def build_passes(
    task: "Task", strategy: Strategy, state: TrainingState, data: Data, clock: Clock
) -> Passes:
    """What goes through the model, once it has its weights."""
    device, stored = strategy.worker.device, formats.stored(strategy.worker.training.precision)
    return Passes(
        task=task,
        model=strategy.wrap(state.model),
        bare=state.model,
        data=Data(data.train.to(device, stored), data.validation.to(device, stored)),
        autocast=strategy.autocast,
        scaler=state.scaler,
        clock=clock,
    )


def build_model(task: "Task", training: Training, device: torch.device) -> nn.Module:
    """The task's model, its modules as the options want them."""
    stored = formats.stored(training.precision)
    model = task.build_model().to(device, stored)
    formats.keep_in_float32(model, training.float32_modules, stored)
    if training.recompute:
        recompute(model, training.recompute)
    if training.compile != "none":
        _compile(model, training.compile)
    return model


def _compile(model: nn.Module, backend: str) -> None:
    """Let a model's forward pass be compiled, with what it calls."""
    forward = model.forward

    def whole(*args: Any, **named: Any) -> Any:  # the frames of torch's own modules are skipped
        return forward(*args, **named)

    model.forward = torch.compile(whole, backend=backend)


@contextmanager
def _fresh_compiler(training: Training) -> Iterator[None]:
    """After some models of other shapes torch compiles no more: each order begins anew."""
    try:
        yield
    finally:
        if training.compile != "none":
            torch._dynamo.reset()


def _freeze_others(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """What the optimizer does not update gets no gradient, which would add up and be clipped."""
    held = {id(each) for group in optimizer.param_groups for each in group["params"]}
    for parameter in model.parameters():
        if id(parameter) not in held:
            parameter.requires_grad_(False)


def _checked(data: Data) -> Data:
    for name in ("train", "validation"):
        if not len(getattr(data, name)):
            raise ValueError(f"load_data: there are no samples in {name}; give one or more")
    return data


def build_optimizer(task: "Task", model: nn.Module, training: Training) -> torch.optim.Optimizer:
    """The task's own optimizer, or the one that the options name; learning rates scaled."""
    scale = scale_lr(training.lr_scaling, task.batch, training.lr_batch)
    if training.optimizer == "task":
        optimizer = task.build_optimizer(model)
        for group in optimizer.param_groups:
            group["lr"] *= scale
        return optimizer
    options = OptimizerOptions(
        name=training.optimizer,
        lr=task.lr * scale,
        weight_decay=training.weight_decay,
        momentum=training.momentum,
        layer_decay=training.layer_decay,
    )
    return build(model, options)
