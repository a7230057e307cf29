"""The trainer of K trials that make their updates at once.

Axes: K trials, N training samples, B samples of a batch, P weights of a trial, U updates of a step,
G groups of the optimizer, C coefficients of its update.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trainables.monitoring.clock import Clock
from trainables.randomness import derive, seed_all
from trainables.training_state.tallies import add_up
from trainables.vmapped import dropout
from trainables.vmapped.optimizers import matching_optimizer
from trainables.vmapped.passes import Tallies, VmapForwardBackward
from trainables.vmapped.refusals import Unbatchable
from trainables.vmapped.shares import SharedStep
from trainables.vmapped.stack import Layout, Stack
from trainables.vmapped.trial_state import VmappedTrial


class Tallied(NamedTuple):
    """The result of a step of one trial."""

    tallies: dict[str, Tensor]  # of losses and metrics, on the CPU
    clip_tallies: Tensor | None  # of gradient norms, and of the share that was clipped: (2, 2)
    updates: int


class VmapTrainer:
    """Trainer of trials that are at the same update of their steps.

    Args:
        prototype: one of the trials, whose model, data and optimizer serve for all; `add` it too.
    """

    def __init__(self, prototype: VmappedTrial) -> None:
        trainer = prototype.trainer
        self.trials: list[VmappedTrial] = []
        self._layout = Layout.of(trainer.state)
        self._optimizer = matching_optimizer(trainer.state.optimizer)
        weight = trainer.state.optimizer.param_groups[0]["params"][0]
        self._stack = Stack(self._layout, self._optimizer, weight.detach())
        self._clock = Clock(trainer.worker.device)
        self._passes = VmapForwardBackward(trainer.passes, self._clock)
        self._size = trainer.task.batch
        self._data = trainer.passes.data

    def check(self, trial: VmappedTrial) -> None:
        """Refuse another kind of optimizer, or other groups of weights.

        Raises:
            Unbatchable: names the difference.
        """
        state = trial.trainer.state
        theirs = type(self.trials[0].trainer.state.optimizer).__name__
        if matching_optimizer(state.optimizer) != self._optimizer:
            raise Unbatchable(
                f"its optimizer is {type(state.optimizer).__name__}, that of the trials that it "
                f"would train with {theirs}, or another variant; trials that train at once have "
                "one kind"
            )
        if Layout.of(state) != self._layout:
            raise Unbatchable("its optimizer has other groups of weights than the others'")

    def add(self, trial: VmappedTrial) -> None:
        """Add a row for a trial."""
        before = self.trials
        try:
            trial.updates = self._stack.append(trial.trainer.state)
            self._set_trials([*before, trial])
        except BaseException:
            self._stack.keep(range(len(before)))
            self._set_trials(before)
            raise
        trial.trainer.state.optimizer.state.clear()  # the rows hold a checkpoint's state now

    def remove(self, trial: VmappedTrial) -> None:
        """Remove a trial's row."""
        rows = [row for row, other in enumerate(self.trials) if other is not trial]
        self._stack.keep(rows)
        self._set_trials([self.trials[row] for row in rows])

    def write_back(self, trial: VmappedTrial) -> None:
        """Copy a trial's row into its own model and optimizer."""
        self._stack.write_back(self.trials.index(trial), trial.trainer.state, trial.updates)

    @staticmethod
    def discard_copy(trial: VmappedTrial) -> None:
        """Free the state that `write_back` copied into a trial's own optimizer."""
        trial.trainer.state.optimizer.state.clear()

    def train(self) -> list[Tallied]:
        """Train a step of all trials, and return the result of each trial."""
        first = self.trials[0]
        seed_all(derive(first.worker.seed, "batched", first.step))  # for draws outside nn.Dropout
        order_KN = torch.stack([trial.order() for trial in self.trials])
        batches = self._data.batches(order_KN.to(self._data.train.index_device), self._size)
        losses_K2, cut_K22 = self._update(batches)
        tallies = {"train/loss": losses_K2, **self._evaluate()}
        table = torch.stack(list(tallies.values()), dim=1).cpu()
        cuts = None if cut_K22 is None else cut_K22.cpu()
        shared_step = SharedStep.over(
            self._clock, len(batches), len(self.trials), self._stack.weights_KP
        )
        for trial in self.trials:
            trial.updates += len(batches)
            trial.monitor.record(shared_step)
        return [
            Tallied(
                dict(zip(tallies, table[row], strict=True)),
                _clip_tally(cuts, row, trial),
                len(batches),
            )
            for row, trial in enumerate(self.trials)
        ]

    def _set_trials(self, trials: list[VmappedTrial]) -> None:
        self.trials = trials
        if not trials:
            return
        draws = self._passes.dropout_masks
        draws.generators = [trial.generator for trial in trials]
        rates = [dropout.rates(trial.trainer.passes.unwrapped_model) for trial in trials]
        draws.rates = {name: [rates_by_name[name] for rates_by_name in rates] for name in rates[0]}
        self._passes.set_tasks([trial.trainer.task for trial in trials], self._stack.weights_KP)

    def _update(self, batches: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """Make the updates of a step; return tallies of losses, and of norms and clipping."""
        rows = [trial.coefficients(self._optimizer, len(batches)) for trial in self.trials]
        like = self._stack.weights_KP
        # Those of all updates of the step, sent in one transfer.
        coefficients_UGCK = torch.tensor(rows, dtype=like.dtype).permute(1, 2, 3, 0).to(like.device)
        bounds = [trial.worker.training.clip for trial in self.trials]
        max_norm_K = self._stack.weights_KP.new_tensor([bound or math.inf for bound in bounds])
        losses_K2 = torch.zeros(len(bounds), 2, dtype=torch.float64, device=max_norm_K.device)
        cut_K22 = None if not any(bounds) else losses_K2.new_zeros(len(bounds), 2, 2)
        for at_KB, coefficients_GCK in zip(batches, coefficients_UGCK, strict=True):
            self._clock.next_update()
            g_KP, tally_K2 = self._passes.gradients(self._stack, at_KB)
            losses_K2 += tally_K2
            with self._clock.phase("optimizer"):
                if cut_K22 is not None:
                    cut_K22 += clip(g_KP, max_norm_K)
                self._stack.step(g_KP, coefficients_GCK)
            del g_KP  # the next pass needs the memory
            for trial in self.trials:
                trial.worker.beat()
        return losses_K2, cut_K22

    def _evaluate(self) -> Tallies:
        """Return the tallies of metrics on the validation samples, in the parts of a lone trial."""
        validation = self._data.validation
        positions = torch.arange(len(validation), device=validation.index_device)
        parts = positions.tensor_split(-(-len(positions) // self._size))
        tallies = add_up(self._passes.evaluate(self._stack, part) for part in parts)
        return {f"val/{name}": tally for name, tally in tallies.items()}


@torch.no_grad()
def clip(g_KP: Tensor, max_norm_K: Tensor) -> Tensor:
    """Clip each trial's gradient by its norm, in place; return tallies of norm and clipped share.

    For the source, and the small constant, see trainables.optim.clipping.

    Args:
        max_norm_K: infinity for a trial that clips nothing.
    """
    norm_K = torch.linalg.vector_norm(g_KP, dim=1)
    ratio_K = (max_norm_K / (norm_K + 1e-6)).clamp(max=1.0)
    g_KP.mul_(torch.where(max_norm_K.isinf(), 1.0, ratio_K)[:, None])
    finite_K = norm_K.isfinite()
    values_K2 = torch.stack([norm_K, (norm_K > max_norm_K).to(norm_K)], dim=1).double()
    pairs_K22 = torch.stack([values_K2, torch.ones_like(values_K2)], dim=2)
    return torch.where(finite_K[:, None, None], pairs_K22, 0.0)


def _clip_tally(cuts: Tensor | None, row: int, trial: VmappedTrial) -> Tensor | None:
    clips = trial.worker.training.clip is not None
    return cuts[row] if cuts is not None and clips else None
