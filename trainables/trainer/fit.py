"""Train a Task for one order, with the model, optimizer and strategy that its options ask for."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from trainables import combinations
from trainables.blocks import blocks
from trainables.checkpoints.saver import Saver
from trainables.data import Data, Stream, StreamShard, Tensors
from trainables.errors import out_of_memory
from trainables.monitoring.clock import Clock
from trainables.monitoring.layers import Layers
from trainables.monitoring.train_monitor import TrainMonitor
from trainables.optim.averaging import Ema
from trainables.optim.building import OptimizerOptions, build
from trainables.optim.chained import Chained, as_one, name_of, parts_of, turns_of, weights_of
from trainables.optim.evaluation_mode import start_training, with_modes
from trainables.optim.schedules import Plateau, scale_lr
from trainables.optim.transfer import scale_optimizer, scale_weights
from trainables.parallel.strategy import Strategy, choose
from trainables.randomness import derive, preserved, seed_all
from trainables.strategies import STRATEGIES, OptimizerKind, default_strategy
from trainables.task import Task
from trainables.trainer import scoring, settings
from trainables.trainer.activation_checkpointing import checkpoint_blocks
from trainables.trainer.forward_backward import ForwardBackward
from trainables.trainer.loop import Trainer
from trainables.trainer.measuring import measure_costs
from trainables.trainer.optimizer_step import OptimizerStep
from trainables.trainer.pipeline_passes import PipelinePasses
from trainables.training import Training
from trainables.training_state import precision as formats
from trainables.training_state.divergence import LossSpikeDetector
from trainables.training_state.loop_state import LoopState, TrainingState
from trainables.training_state.micro_batch_halving import MicroBatching
from trainables.vmap_options import as_text
from trainables.worker import Worker

# What each kind of optimizer does, and the values of options that it works with; the strategies
# that cannot step it are in trainables/strategies.py.
OPTIMIZER_KINDS: Mapping[OptimizerKind, tuple[str, Mapping[str, tuple[object, ...]]]] = {
    "several": ("is made of several", {}),
    "turns": (
        "takes turns",
        {
            "static_graph": (False,),  # each turn has a graph
            "log_layers_every": (0,),  # it measures one step of all layers
            "nan": ("stop",),  # the others judge by one loss
        },
    ),
    "evaluation_weights": ("has weights for evaluation", {"ema": (None,)}),  # one average is enough
    "muon": (
        "iterates over matrices in bfloat16, which rounds differently over their parts",
        {},
    ),
}


def fit(task: Task, worker: Worker) -> None:
    """Train the steps of an order; StopTrial passes through."""
    if worker.sharing is not None and worker.sharing.fit(task, worker):
        return
    with preserved(), prepare(task, worker) as trainer:
        trainer.run()


@contextmanager
def prepare(task: Task, worker: Worker) -> Iterator[Trainer]:
    """Build the model and optimizer of an order, or restore them from the order's checkpoint.

    Raises:
        ValueError: training options exclude each other, or do not suit the task.
    """
    training = worker.training
    combinations.check(training, worker.world_size, worker.nan)
    scoring.check(task, f"strategy: {training.strategy}" if training.traits.stages else "")
    with settings.applied(training, worker.device), _compiler_reset(training):
        strategy = choose(worker, task.plan_tensor)
        seed_all(derive(worker.seed, "model"))
        data = _check_not_empty(task.load_data())
        if worker.rank == 0 and worker.start is None:
            worker.uses(*data.describe(type(task).__name__))
        state = build_state(task, strategy)
        saver = Saver(strategy)
        rates = tuple(group["lr"] for group in state.optimizer.param_groups)
        saver.restore(state)
        if training.compile == "none":
            worker.beat()  # from here on only heartbeats count: a hanging collective looks busy
        monitor = TrainMonitor(worker)
        passes = build_passes(task, strategy, state, data, monitor.clock)
        saver.stream = passes.data.train if isinstance(passes.data.train, StreamShard) else None
        micro_batching = MicroBatching(training.accumulate * 2**worker.shrink)
        micro_batching.warn_of_batch_norms(state.model, worker.rank)
        update = OptimizerStep(
            strategy=strategy,
            passes=passes,
            state=state,
            micro_batching=micro_batching,
            layers=Layers(state.model) if training.log_layers_every else None,
        )
        try:
            costs = measure_costs(passes, strategy)
            yield Trainer(
                task, worker, strategy, passes, update, state, saver, monitor, rates, costs
            )
        finally:
            strategy.close()


def build_state(task: Task, strategy: Strategy) -> TrainingState:
    """Build everything that updates change, as it is at the beginning of a trial."""
    worker, training = strategy.worker, strategy.worker.training
    whole = task.build_model()
    weights = sum(parameter.numel() for parameter in whole.parameters())
    growths = scale_weights(task, whole)  # in its own format, so alike under each strategy
    model = strategy.shard(adapt_model(strategy.to_device(whole), training))
    if worker.sharing is not None:
        worker.sharing.share_model(model)
    optimizer = build_optimizer(task, model, training)
    scale_optimizer(optimizer, model, growths, task, training.lr_scaling)
    _check_optimizer(optimizer, worker)
    optimizer = strategy.setup_optimizer(optimizer)
    start_training(optimizer)
    # The gradients of weights without optimizer would add up and be clipped.
    trained = set(map(id, weights_of(optimizer)))
    for parameter in model.parameters():
        if id(parameter) not in trained:
            parameter.requires_grad_(False)
    return TrainingState(
        model=model,
        optimizer=optimizer,
        scaler=formats.scaler(training.precision, worker.device, strategy.sync_found_inf),
        average=None if training.ema is None else Ema(model, training.ema),
        plateau=Plateau() if training.schedule == "plateau" else None,
        spike_detector=None if worker.nan == "stop" else LossSpikeDetector(worker.nan),
        loop_state=LoopState.fresh(worker.device),
        weights=weights,
    )


def _check_optimizer(optimizer: torch.optim.Optimizer, worker: Worker) -> None:
    """Refuse options that do not suit the task's optimizer.

    Raises:
        ValueError: there are such options; the message has all of them.
    """
    alone = {"strategy": default_strategy(1)} if worker.world_size == 1 else {}
    options = {**vars(worker.training), **alone, "nan": worker.nan}
    kinds: dict[OptimizerKind, object] = {
        "several": isinstance(optimizer, Chained),
        "turns": turns_of(optimizer),
        "evaluation_weights": with_modes(optimizer),
        "muon": _is_muon(optimizer),
    }
    problems = [
        f"{'failure' if name == 'nan' else 'training'}.{name} is {as_text(options[name])}, but the "
        f"task's optimizer ({name_of(optimizer)}) {why}; choose {' or '.join(map(as_text, values))}"
        for kind, is_kind in kinds.items()
        for why, allowed in [OPTIMIZER_KINDS[kind]]
        for name, values in {"strategy": _strategies_for(kind), **allowed}.items()
        if is_kind and options[name] not in values
    ]
    if problems:
        raise ValueError("\n".join(problems))


def _strategies_for(kind: OptimizerKind) -> tuple[str, ...]:
    return tuple(
        name for name, strategy in STRATEGIES.items() if kind not in strategy.unsuited_optimizers
    )


def _is_muon(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a part of it is torch's Muon, a subclass, or another package's."""
    kinds = (kind for part in parts_of(optimizer) for kind in type(part).__mro__)
    return any("muon" in kind.__name__.lower() for kind in kinds)


def build_passes(
    task: Task, strategy: Strategy, state: TrainingState, data: Data, clock: Clock
) -> ForwardBackward:
    """Build the forward and backward passes of a model that has its weights."""
    return (PipelinePasses if strategy.splits_batches else ForwardBackward)(
        task=task,
        strategy=strategy,
        model=strategy.wrap(state.model),
        unwrapped_model=state.model,
        data=_open_data(data, task.batch, strategy),
        scaler=state.scaler,
        clock=clock,
    )


class DataTooLarge(ValueError):
    """Raised if the samples do not fit beside the model, whatever the size of a batch."""


def _open_data(data: Data, batch: int, strategy: Strategy) -> Data:
    """Move the samples to the rank's device, and open the rank's part of a stream.

    Raises:
        DataTooLarge: in place of an out-of-memory error, which would be blamed on the
            configuration, and the searcher would learn that all configurations fail.
    """
    worker = strategy.worker
    device, dtype = worker.device, formats.of_samples(worker.training.precision)
    try:
        train, validation = data.train.to(device, dtype), data.validation.to(device, dtype)
        if isinstance(train, Stream):
            seed = derive(worker.seed, "samples")
            train = train.shard(strategy.dp_rank, strategy.dp_size, batch=batch, seed=seed)
    except Exception as error:
        if not out_of_memory(error):
            raise
        raise DataTooLarge(
            f"load_data: the samples ({data.train.samples} to learn from, "
            f"{data.validation.samples} to judge by) do not fit on {device} beside the "
            "model; give MapDataset(...) or Tokens(...) in place of Tensors(...), which keep them "
            "off it and load batches ahead"
        ) from None
    for source in (train, validation):
        if worker.sharing is not None and isinstance(source, Tensors):
            source.columns = worker.sharing.shared(source.columns)
    return replace(data, train=train, validation=validation)


def adapt_model(model: nn.Module, training: Training) -> nn.Module:
    """Change the modules of a model as the options want, and return it."""
    stored = formats.stored(training.precision)
    formats.keep_in_float32(model, training.float32_modules, stored)
    if training.activation_checkpointing:
        checkpoint_blocks(model, training.activation_checkpointing, training.compile != "none")
    if training.compile != "none":
        # Weights are gathered between the blocks.
        parts = list(blocks(model).values()) if training.traits.gathers_blocks else []
        for part in parts or [model]:
            _compile(part, training.compile)
    return model


def _compile(model: nn.Module, backend: str) -> None:
    """Compile a module's forward pass, with all modules that it calls."""
    forward = model.forward

    def whole(*args: Any, **named: Any) -> Any:  # the frames of torch's own modules are skipped
        return forward(*args, **named)

    model.forward = torch.compile(whole, backend=backend)


@contextmanager
def _compiler_reset(training: Training) -> Iterator[None]:
    """Reset torch's compiler on exit: after several models of other shapes it stops compiling."""
    try:
        yield
    finally:
        if training.compile != "none":
            torch._dynamo.reset()


def _check_not_empty(data: Data) -> Data:
    for name in ("train", "validation"):
        if getattr(data, name).samples == 0:
            raise ValueError(f"load_data: there are no samples in {name}; give one or more")
    return data


def build_optimizer(task: Task, model: nn.Module, training: Training) -> torch.optim.Optimizer:
    """Build the task's own optimizer, or the one that the options name; scale learning rates."""
    scale = scale_lr(training.lr_scaling, task.batch, training.lr_base_batch)
    if training.optimizer == "task":
        built = task.build_optimizer(model)
        optimizer = as_one(built, model, f"{type(task).__name__}.build_optimizer")
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
