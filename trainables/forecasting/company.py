"""An update of several trials that train at once, by the code that makes it, without data.

Each trial has a model of its own, which is saved and shown; what trains is its row of the stack.

Axes: K trials, B samples of a batch, G groups of the optimizer, C coefficients of its update.
"""

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from trainables.batched import dropout, refusals
from trainables.batched.lockstep import clip
from trainables.batched.optimizers import alike
from trainables.batched.passes import Passes
from trainables.batched.stack import Layout, Stack
from trainables.data import Batch, Data
from trainables.fitting import passes, precision
from trainables.fitting.state import Marks, TrainingState
from trainables.forecasting.kernels import chosen
from trainables.forecasting.ledger import Ledger
from trainables.forecasting.outline import faked, outline
from trainables.forecasting.rehearsal import Course, explained, optimizer_of, worker_of
from trainables.parallel.strategies import Strategy
from trainables.training import Training
from trainables.watching.clock import Clock

if TYPE_CHECKING:
    from trainables.task import Task


@dataclass
class Company:
    """K trials without data, about to be trained at once."""

    trials: int
    own: nn.Module  # the model of one trial
    stack: Stack
    passes: Passes
    bound: float | None  # of each trial's gradient
    coefficients: tuple[int, int]  # G and C

    def run(self, ledger: Ledger, batch: Batch) -> Course:
        """An update of them all, in an account of its memory.

        Args:
            batch: of one trial.
        """
        stack, weights = self.stack, dict(self.own.named_parameters())
        others = [*_many(weights.values(), self.trials - 1)]
        buffers = [*self.own.buffers(), *_many(self.own.buffers(), self.trials - 1)]
        held = {True: [stack.weights_KP], False: buffers}
        for name, rows in stack.held.items():
            held[name in weights].append(rows)
        parameters = ledger.enter([*weights.values(), *others, *held[True]], "parameters")
        beside = ledger.enter(held[False], "buffers")
        optimizer = ledger.enter(stack.kept.values(), "optimizer")
        batch_K = tuple(_many(batch, self.trials))
        ledger.enter(batch_K, "samples")
        ledger.forget_peak()  # of their coming together, one after the other
        g_KP, activations = self._gradients(ledger, batch_K)
        gradients = ledger.enter([g_KP], "gradients")
        self._step(ledger, g_KP)
        return Course(
            parameters=parameters,
            gradients=gradients,
            optimizer=optimizer,
            activations=activations,
            buffers=beside,
            exchange=0,
            peak=ledger.peak,
            fullest=ledger.fullest,
        )

    def _gradients(self, ledger: Ledger, batch_K: Batch) -> tuple[Tensor, int]:
        """The gradients, and bytes of what the forward pass left for them."""
        ledger.moment = "forward"
        before = ledger.held("others")
        parts, losses_K = self.passes.losses(self.stack, batch_K)
        kept = ledger.held("others") - before
        ledger.moment = "backward"
        return self.passes.slopes(self.stack, parts, losses_K), kept

    def _step(self, ledger: Ledger, g_KP: Tensor) -> None:
        ledger.moment = "optimizer"
        if self.bound is not None:
            clip(g_KP, g_KP.new_full((self.trials,), self.bound))
        self.stack.step(g_KP, g_KP.new_ones(*self.coefficients, self.trials))


def rehearse_company(
    task: "Task", training: Training, data: Data, batch: Batch, gpu: bool
) -> Course:
    """An update of as many trials as `training.batched` says, each on a batch of its own.

    Args:
        data: the task's.
        batch: of one trial.

    Raises:
        NotForeseen: the task needs numbers; the message says where.
        Unbatchable: its trials cannot train at once.
    """
    refusals.check_data(data, data)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    model = faked(outline(task, training), mode)
    with mode, explained(), chosen(training, gpu), Ledger(mode).kept() as ledger:
        state = _state(task, model, training, gpu)
        return _company(task, training, state, data).run(ledger, batch)


def _company(task: "Task", training: Training, state: TrainingState, data: Data) -> Company:
    trials, optimizer = training.trials_at_once(), alike(state.optimizer)
    groups, strategy = state.optimizer.param_groups, Strategy(worker_of(training, 1))
    stack = Stack(Layout.of(state), optimizer, groups[0]["params"][0].detach())
    for _ in range(trials):
        stack.append(state)
    clock = Clock(strategy.worker.device)
    model = state.model
    alone = passes.Passes(task, model, model, data, strategy.autocast, state.scaler, clock)
    with warnings.catch_warnings():  # torch 2.13 looks for the data of what it copies
        warnings.simplefilter("ignore", UserWarning)
        computing = Passes(alone, clock)
    computing.draws.generators = [torch.Generator() for _ in range(trials)]
    computing.draws.rates = {
        name: [rate] * trials for name, rate in dropout.rates(state.model).items()
    }
    computing.place([task] * trials, stack.weights_KP)
    size = (len(groups), len(optimizer.coefficients(groups[0], 1)))
    return Company(trials, state.model, stack, computing, training.clip, size)


def _state(task: "Task", model: nn.Module, training: Training, gpu: bool) -> TrainingState:
    """What a trial that begins has."""
    optimizer, device = optimizer_of(task, model, training, gpu), torch.device("cpu")
    return TrainingState(
        model=model,
        optimizer=optimizer,
        scaler=precision.scaler(training.precision, device, lambda found: found),
        average=None,
        plateau=None,
        guard=None,
        marks=Marks.fresh(device),
    )


def _many(tensors: Iterable[Tensor], number: int) -> Iterator[Tensor]:
    """So many of each, in one."""
    return (torch.empty(number, *each.shape, dtype=each.dtype) for each in tensors)
