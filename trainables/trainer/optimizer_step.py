"""A step of the optimizer on a global batch, or of each optimizer that takes turns, one by one.

The gradient is exactly that of the mean loss over all elements of the batch: each rank adds up its
own losses, and one reduction divides by the global count. So neither the number of ranks nor that
of micro-batches changes what is learned, unless a model looks at the samples of a pass together, as
batch norm does.

Axes: B samples of the global batch, T turns; T is 1 for tasks without turns.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainables.errors import out_of_memory
from trainables.monitoring.layers import Layers
from trainables.optim.chained import parts_of, turns_of, weights_of
from trainables.parallel.strategy import Strategy, largest_share, split_batch
from trainables.trainer.forward_backward import ForwardBackward
from trainables.training_state.divergence import Rollback
from trainables.training_state.loop_state import TrainingState
from trainables.training_state.micro_batch_halving import AgreedOutOfMemory, MicroBatching
from trainables.training_state.tallies import empty, tally_of
from trainables.worker import PassLost, Worker

SCALE_CHECKS = 50  # updates between checks of float16's loss scale, which wait for the GPU
FREE = ("cpu",)  # devices whose values can be read without waiting
CAREFUL = 2  # updates after which an order's memory use is settled: the optimizer's state is there


@dataclass(frozen=True)
class Turn:
    """A pass and a step of an update."""

    passes: ForwardBackward
    optimizer: Optimizer
    others: list[nn.Parameter]  # weights that another turn updates


@dataclass
class OptimizerStep:
    """The objects that an update works on; `run` makes an update."""

    strategy: Strategy
    passes: ForwardBackward
    state: TrainingState
    micro_batching: MicroBatching
    layers: Layers | None
    number: int = 0  # updates that this order has tried
    weights: list[nn.Parameter] = field(init=False)  # the weights that get a gradient
    elements: Tensor = field(init=False)  # number of losses of the last turn
    turns: list[Turn] = field(init=False)
    norms: Tensor = field(init=False)  # tally of finite gradient norms
    clipped: Tensor = field(init=False)  # tally of the clipped share
    seen: dict[str, float] = field(default_factory=dict, init=False)  # the layers' last statistics

    def __post_init__(self) -> None:
        model = self.passes.unwrapped_model
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.norms, self.clipped = empty(self._device), empty(self._device)
        self.turns = _turns(self.passes, self.state.optimizer)

    def run(self, at_B: Tensor) -> list[Tensor]:
        """Update the weights; return this rank's tally of losses of each turn.

        Raises:
            Rollback: the update was bad; the weights are unchanged.
            Diverged: training cannot continue.
            TooLarge: memory ran out, and the other ranks could not be told.
        """
        tallies = [self._take(turn, at_B) for turn in self.turns]
        self.strategy.after_update(self.passes.unwrapped_model)
        self.number += 1
        self.strategy.worker.beat()
        return tallies

    def named(self, losses_T2: Tensor) -> dict[str, Tensor]:
        """Return the tallies of losses by metric: over all turns, and of each turn."""
        turns = turns_of(self.state.optimizer)
        of_turns = {f"train/loss/{turn}": losses_T2[at] for at, turn in enumerate(turns)}
        return {"train/loss": losses_T2.sum(dim=0), **of_turns}

    def _take(self, turn: Turn, at_B: Tensor) -> Tensor:
        """Update the weights of a turn; return this rank's tally of its losses."""
        # Dividing by the expected number of elements beforehand keeps float16 gradients in range;
        # `_divide_by_true_count` corrects by the true number.
        expected = max(1, round(len(at_B) * self.state.loop_state.elements_per_sample))
        tally = self._compute_gradients(turn, at_B, self.strategy.dp_size / expected)
        with self.passes.clock.phase("communication"):
            total = self.strategy.reduce_loss_sum(tally, self.passes.model)
        self.elements = total[1]
        with self.passes.clock.phase("optimizer"):
            _drop(turn.others)
            self._divide_by_true_count(turn, len(at_B), expected, total[1])
            updated = self._step(turn, total)
        return tally if updated else torch.zeros_like(tally)  # a skipped update does not count

    def count_elements(self) -> float:
        """Return the number of losses of the last turn; this waits for the device."""
        if self.strategy.grads_synchronized:
            return self.elements.item()
        # See LocalSgd.reduce_loss_sum: a rank takes its own number for that of each rank.
        return self.strategy.all_reduce_sum(self.elements / self.strategy.dp_size).item()

    def drop_gradients(self) -> None:
        """Free the gradients, which the next update makes anew."""
        _drop(self.weights)

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the updates since the last call, and start afresh."""
        values = {**self.seen, "train/accumulate": float(self.micro_batching.count)}
        for name, tally in (("grad_norm", self.norms), ("clip_fraction", self.clipped)):
            total, count = tally.tolist()
            if count:
                values[f"train/{name}"] = total / count
            tally.zero_()
        if self.state.spike_detector is not None:
            values["train/skipped"] = float(self.state.spike_detector.skipped)
            values["train/rollbacks"] = float(self.state.spike_detector.rollbacks)
        if self.passes.scaler.is_enabled():
            values["train/loss_scale"] = self.passes.scaler.get_scale()
        self.seen = {}
        return values

    @property
    def _device(self) -> torch.device:
        return self.strategy.worker.device

    def _compute_gradients(self, turn: Turn, at_B: Tensor, scale: float) -> Tensor:
        while True:
            _drop(self.weights)
            try:
                parts = split_batch(at_B, self.strategy, self.micro_batching.count)
                with in_pass(self.strategy.worker):
                    return turn.passes.backward(parts, scale, self.number < CAREFUL)
            except PassLost as lost:
                lost.with_traceback(None)  # its traceback holds the activations
                continue
            except Exception as error:
                if not out_of_memory(error):
                    raise
                failure = error.with_traceback(None)  # its traceback holds the activations
            # All ranks shrink alike: a rank that gave up alone would leave the others waiting.
            self._shrink_micro_batches(largest_share(len(at_B), self.strategy), failure)

    def _shrink_micro_batches(self, samples: int, failure: Exception) -> None:
        _drop(self.weights)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        if self.strategy.worker.world_size == 1 or isinstance(failure, AgreedOutOfMemory):
            self.micro_batching.halve(samples, failure)
            self.micro_batching.warn_of_batch_norms(self.state.model, self.strategy.worker.rank)
        else:
            raise self.micro_batching.refusal(samples, failure) from failure

    def _divide_by_true_count(
        self, turn: Turn, samples: int, expected: int, elements: Tensor
    ) -> None:
        """Turn the gradients into exact means over the losses' elements."""
        self.passes.scaler.unscale_(turn.optimizer)
        # On a GPU only the first updates read how many values a sample has: they wait anyway.
        if elements.device.type in FREE or self.number < CAREFUL:
            count = elements.item()
            # A single turn's number, so that a resumed order divides alike from its first update.
            if self.strategy.grads_synchronized and turn is self.turns[-1]:
                self.state.loop_state.elements_per_sample = max(count, 1.0) / samples
            if count == expected:
                return
        if gradients := self.strategy.gradients(self.weights):
            ratio = expected / elements.clamp(min=1)
            torch._foreach_mul_(gradients, ratio.to(gradients[0].device, gradients[0].dtype))

    def _step(self, turn: Turn, total: Tensor) -> bool:
        """Step the optimizer, unless the update is bad; return whether the weights were updated."""
        training = self.strategy.worker.training
        sampled = self.layers is not None and self.number % training.log_layers_every == 0
        if self.layers is not None and sampled:
            self.layers.before_step()
        norm = None if training.clip is None else self._clip(training.clip)
        if self.state.spike_detector is not None and not self._is_good(total, norm):
            self.passes.scaler.update()  # after unscaling it expects a step or this call
            return False
        self.passes.scaler.step(turn.optimizer)
        self.passes.scaler.update()
        if self.number % SCALE_CHECKS == 0:
            self.passes.scaler.check()
        if self.layers is not None and sampled:
            self.seen = self.layers.after_step()
        if self.state.average is not None and turn is self.turns[-1]:
            self.state.average.update()
        return True

    def _clip(self, most: float) -> Tensor:
        """Clip the gradients; return their norm before clipping."""
        by = self.strategy.worker.training.clip_by
        result = self.strategy.clip(self.passes.unwrapped_model, most, by)
        finite = result.norm.isfinite().to(self._device)  # float16 overflows on its way to a scale
        for tally, value in ((self.norms, result.norm), (self.clipped, result.clipped)):
            tally += torch.where(finite, tally_of(value.to(self._device)), 0.0)
        return result.norm

    def _is_good(self, total: Tensor, norm: Tensor | None) -> bool:
        """Return whether to take the step; this waits for the device."""
        assert self.state.spike_detector is not None
        if self.passes.scaler.is_enabled():
            # The scaler judges gradients, since infinite ones are how it finds its scale.
            norm_value = 0.0
        else:
            norm_value = float(
                self.strategy.norm(self.strategy.gradients(self.weights)) if norm is None else norm
            )
        action = self.state.spike_detector.judge(
            float(total[0] / total[1].clamp(min=1)), norm_value
        )
        if action == "rollback":
            self.passes.scaler.update()
            raise Rollback
        return action == "go"


def _turns(passes: ForwardBackward, optimizer: Optimizer) -> list[Turn]:
    """Return an update's turns: by default one, of the whole optimizer."""
    if not (names := turns_of(optimizer)):
        return [Turn(passes, optimizer, [])]
    turns = []
    for name, part in zip(names, parts_of(optimizer), strict=True):
        own = set(map(id, weights_of(part)))
        others = [weight for weight in weights_of(optimizer) if id(weight) not in own]
        turns.append(Turn(replace(passes, turn=name), part, others))
    return turns


def in_pass(worker: Worker) -> AbstractContextManager[None]:
    """Return the context of passes; other trials of the process may have one of their own."""
    return nullcontext() if worker.sharing is None else worker.sharing.in_pass()


def _drop(weights: list[nn.Parameter]) -> None:
    """Drop the gradients of these weights."""
    for weight in weights:
        weight.grad = None
