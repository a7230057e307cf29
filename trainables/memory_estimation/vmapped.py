"""A fake training step of several trials training at once, by the code of the real one.

Each trial has a model of its own, for checkpoints and logs; its row of the stack is trained.

Axes: K trials, B samples of a batch, G groups of the optimizer, C coefficients of its update.
"""

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from trainables.data import Batch, Data
from trainables.memory_estimation.fake_step import explain_errors, fake_rank, optimizer_of
from trainables.memory_estimation.kernels import device_kernels
from trainables.memory_estimation.memory_tracker import MemoryBreakdown, MemoryTracker
from trainables.memory_estimation.meta_model import meta_model, to_fake
from trainables.monitoring.clock import Clock
from trainables.parallel.strategy import Strategy
from trainables.task import Task
from trainables.trainer import forward_backward as passes
from trainables.training import Training
from trainables.training_state import precision
from trainables.training_state.loop_state import LoopState, TrainingState
from trainables.vmapped import dropout, refusals
from trainables.vmapped.optimizers import matching_optimizer
from trainables.vmapped.passes import VmapForwardBackward
from trainables.vmapped.stack import Layout, Stack
from trainables.vmapped.vmap_trainer import clip


@dataclass
class VmappedMemoryModel:
    """K trials without data, ready for a fake training step."""

    trials: int
    own: nn.Module  # the model of one trial
    stack: Stack
    passes: VmapForwardBackward
    bound: float | None  # the clipping norm of each trial's gradient
    coefficients: tuple[int, int]  # G and C

    def run(self, tracker: MemoryTracker, batch: Batch) -> MemoryBreakdown:
        """Run one update of all trials while `tracker` counts its memory.

        Args:
            batch: of one trial.
        """
        stack, weights = self.stack, dict(self.own.named_parameters())
        others = [*_stacked(weights.values(), self.trials - 1)]
        buffers = [*self.own.buffers(), *_stacked(self.own.buffers(), self.trials - 1)]
        tensors_by_trained = {True: [stack.weights_KP], False: buffers}
        for name, rows in stack.untrained.items():
            tensors_by_trained[name in weights].append(rows)
        parameters = tracker.enter(
            [*weights.values(), *others, *tensors_by_trained[True]], "parameters"
        )
        beside = tracker.enter(tensors_by_trained[False], "buffers")
        optimizer = tracker.enter(stack.optimizer_state.values(), "optimizer")
        batch_K = tuple(_stacked(batch, self.trials))
        tracker.enter(batch_K, "samples")
        tracker.forget_peak()  # of adding the trials to the stack one by one
        g_KP, activations = self._gradients(tracker, batch_K)
        gradients = tracker.enter([g_KP], "gradients")
        self._step(tracker, g_KP)
        return MemoryBreakdown(
            parameters=parameters,
            gradients=gradients,
            optimizer=optimizer,
            activations=activations,
            buffers=beside,
            exchange=0,
            peak=tracker.fullest.total,
            fullest=tracker.fullest.moment,
        )

    def _gradients(self, tracker: MemoryTracker, batch_K: Batch) -> tuple[Tensor, int]:
        """Return the gradients, and the bytes of activations that the forward pass kept."""
        tracker.moment = "forward"
        before = tracker.held("others")
        outputs, losses_K = self.passes.losses(self.stack, batch_K)
        activations = tracker.held("others") - before
        tracker.moment = "backward"
        return self.passes.differentiate(self.stack, outputs, losses_K), activations

    def _step(self, tracker: MemoryTracker, g_KP: Tensor) -> None:
        tracker.moment = "optimizer"
        if self.bound is not None:
            clip(g_KP, g_KP.new_full((self.trials,), self.bound))
        self.stack.step(g_KP, g_KP.new_ones(*self.coefficients, self.trials))


def run_fake_vmapped_step(
    task: Task, training: Training, data: Data, batch: Batch, gpu: bool
) -> MemoryBreakdown:
    """Return the memory of an update of `training.trials_per_process` trials, each on its batch.

    Args:
        data: the task's.
        batch: of one trial.

    Raises:
        CannotForecast: the task reads values of tensors; the message says where.
        Unbatchable: trials of the task cannot train at once.
    """
    refusals.check_data(data, data)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    model = to_fake(meta_model(task, training), mode)
    with (
        mode,
        explain_errors(),
        device_kernels(training, gpu),
        MemoryTracker(mode).tracking() as tracker,
    ):
        state = _state(task, model, training, gpu)
        return _build_model(task, training, state, data).run(tracker, batch)


def _build_model(
    task: Task, training: Training, state: TrainingState, data: Data
) -> VmappedMemoryModel:
    trials, optimizer = training.trials_at_once(), matching_optimizer(state.optimizer)
    groups, strategy = state.optimizer.param_groups, Strategy(fake_rank(training, 1))
    stack = Stack(Layout.of(state), optimizer, groups[0]["params"][0].detach())
    for _ in range(trials):
        stack.append(state)
    clock = Clock(strategy.worker.device)
    model = state.model
    single_trial = passes.ForwardBackward(
        task,
        strategy,
        model,
        model,
        data,
        state.scaler,
        clock,
        looked_at={"compute_losses"},  # a forecast has no values to look at
    )
    with warnings.catch_warnings():  # torch 2.13 warns when it deep-copies tensors without data
        warnings.simplefilter("ignore", UserWarning)
        vmapped_passes = VmapForwardBackward(single_trial, clock)
    vmapped_passes.dropout_masks.generators = [torch.Generator() for _ in range(trials)]
    vmapped_passes.dropout_masks.rates = {
        name: [rate] * trials for name, rate in dropout.rates(state.model).items()
    }
    vmapped_passes.set_tasks([task] * trials, stack.weights_KP)
    coefficients = (len(groups), len(optimizer.coefficients(groups[0], 1)))
    return VmappedMemoryModel(
        trials, state.model, stack, vmapped_passes, training.clip, coefficients
    )


def _state(task: Task, model: nn.Module, training: Training, gpu: bool) -> TrainingState:
    """Return the training state of a new trial."""
    optimizer, device = optimizer_of(task, model, training, gpu), torch.device("cpu")
    return TrainingState(
        model=model,
        optimizer=optimizer,
        scaler=precision.scaler(training.precision, device, lambda overflow: overflow),
        average=None,
        plateau=None,
        spike_detector=None,
        loop_state=LoopState.fresh(device),
    )


def _stacked(tensors: Iterable[Tensor], number: int) -> Iterator[Tensor]:
    """Yield, for each tensor, an empty one with a leading axis of `number`."""
    return (torch.empty(number, *tensor.shape, dtype=tensor.dtype) for tensor in tensors)
