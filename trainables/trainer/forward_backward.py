"""Forward and backward passes over the micro-batches of this rank's share of a batch.

Axes: B samples of a micro-batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward  # no public name without the check

from trainables.data import Batch, Data
from trainables.errors import out_of_memory
from trainables.monitoring.clock import Clock
from trainables.parallel.batchnorm import absent
from trainables.parallel.strategy import Strategy
from trainables.task import Task
from trainables.trainer.per_element import checked
from trainables.trainer.scoring import Predictions, defines
from trainables.training_state.precision import Scaler
from trainables.training_state.tallies import add_up, empty, tally_of


def run_backward(roots: tuple[Tensor, ...], gradients: tuple[Tensor, ...]) -> None:
    """Add up the gradients of leaves, as torch.autograd.backward.

    That one's check of shapes takes 30 us (torch 2.13).
    """
    _engine_run_backward(
        roots, gradients, False, False, (), allow_unreachable=True, accumulate_grad=True
    )


@dataclass(frozen=True)
class ForwardBackward:
    """The passes of a task's losses and metrics through this rank's model."""

    task: Task
    strategy: Strategy
    model: nn.Module  # as the strategy wrapped it
    unwrapped_model: nn.Module  # as the strategy sharded it
    data: Data
    scaler: Scaler
    clock: Clock
    turn: str = ""  # whose losses these are; empty: the task's optimizers take no turns
    looked_at: set[str] = field(default_factory=set)  # see per_element.checked

    def backward(self, parts: Sequence[Tensor], scale: float, careful: bool) -> Tensor:
        """Add up the gradients of this rank's micro-batches, and let ranks exchange them.

        Args:
            parts: positions of the samples of each micro-batch; equally many on each rank.
            scale: factor on the summed losses.
            careful: memory may run out; ranks that can agree on that before exchanging should.

        Returns:
            the tally of losses.

        Raises:
            AgreedOutOfMemory: memory ran out on some rank, and all ranks raise this.
        """
        strategy, model, tallies, failure = self.strategy, self.model, list[Tensor](), None
        carrier = strategy.begin_update(model, careful)
        try:
            for number, part in enumerate(parts, 1):
                with strategy.micro_batch(model, number == len(parts), careful):
                    tallies.append(self._backward(part, scale, carrier))
        except Exception as error:
            if not (strategy.agrees_on_memory(careful) and out_of_memory(error)):
                raise
            failure = error.with_traceback(None)  # its traceback holds the activations
        strategy.end_update(model, careful, failure)
        return tallies[0] if len(tallies) == 1 else torch.stack(tallies).sum(dim=0)

    def _backward(self, at_B: Tensor, scale: float, carrier: Tensor | None) -> Tensor:
        """Add the gradient of the losses' sum, times `scale`; return the tally of losses.

        Without samples this is a pass of one sample that does not count, since other ranks may
        exchange values in their pass.

        Args:
            carrier: a leaf that gets the tally as its gradient.
        """
        if len(at_B):
            return self._backward_sample(at_B, scale, True, carrier)
        with absent(self.unwrapped_model):
            return self._backward_sample(at_B.new_zeros(1), 0.0, False, carrier)

    def _backward_sample(
        self, at_B: Tensor, scale: float, counts: bool, carrier: Tensor | None
    ) -> Tensor:
        with self.clock.phase("data"):
            batch = self.data.train.batch(at_B)
        with self.clock.phase("forward"), self.strategy.autocast():
            losses = self.losses(self.model, batch)
        self.strategy.after_forward()
        tally = tally_of(losses.detach()) if counts else empty(losses.device)
        with self.clock.phase("backward"):
            loss = self.scaler.scale(losses)
            self.clock.split(loss)
            # This is the gradient of the losses' sum times `scale`, without computing the sum.
            roots: tuple[Tensor, ...] = (loss,)
            gradients: tuple[Tensor, ...] = (torch.full_like(loss, scale),)
            if carrier is not None:
                roots, gradients = (*roots, carrier), (*gradients, tally.to(carrier.dtype))
            sharing = self.strategy.worker.sharing
            (run_backward if sharing is None else sharing.backward)(roots, gradients)
        return tally

    def evaluate(self, parts: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return the tally of each metric over these samples, with the same names on every rank."""
        tallies, predicts, strategy = [], defines(self.task, "predict"), self.strategy
        worker = strategy.worker
        predictions = Predictions(self.task, worker, worker.world_size // strategy.dp_size)
        with strategy.evaluating(self.unwrapped_model):
            for part in parts:
                tally, found = self._evaluate_part(part)
                tallies.append(tally)
                if predicts:
                    predictions.gather(part, found)
                worker.beat()
            sums = add_up(tallies)
            for name, score in (predictions.score(sums.keys()) if predicts else {}).items():
                # Of one share only: the mean over ranks has the same bits then.
                counted = [score, 1.0] if strategy.dp_rank == 0 else [0.0, 0.0]
                sums[name] = torch.tensor(counted, dtype=torch.float64, device=worker.device)
        return sums

    def show(self) -> str:
        """Return the text that the task shows of its model; every rank calls this."""
        strategy, model = self.strategy, self.unwrapped_model
        with strategy.evaluating(model), torch.no_grad(), strategy.autocast(), strategy.eager():
            text = self.task.show(model)
        strategy.after_forward()
        return text

    def _evaluate_part(self, at_B: Tensor) -> tuple[dict[str, Tensor], Mapping[str, Tensor]]:
        """Return the tally of each metric, and the task's predictions, unchecked.

        Without samples: tallies of 0 under the same names, and no predictions.
        """
        if not len(at_B):
            names, _ = self._evaluate_part(at_B.new_zeros(1))
            return {name: torch.zeros_like(tally) for name, tally in names.items()}, {}
        batch = self.data.validation.batch(at_B)
        with torch.no_grad(), self.strategy.autocast():
            values = self.values(self.unwrapped_model, batch)
            with self.strategy.eager():
                found = self.task.predict(self.unwrapped_model, batch)
        self.strategy.after_forward()
        return {name: tally_of(value) for name, value in values.items()}, found

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the task's losses for a batch, checked."""
        if self.turn:
            method, losses = "compute_turn", self.task.compute_turn(self.turn, model, batch)
        else:
            method, losses = "compute_losses", self.task.compute_losses(model, batch)
        return checked(self.task, method, {"": losses}, batch, self.looked_at)[""]

    def values(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """Return the values of the task's evaluation for a batch, checked."""
        values = self.task.evaluate(model, batch)
        return checked(self.task, "evaluate", values, batch, self.looked_at)
