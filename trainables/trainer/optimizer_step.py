"""A step of the optimizer on a global batch.

The gradient is exactly that of the mean loss over all elements of the batch: each rank adds up its
own losses, and one reduction divides by the global count. So neither the number of ranks nor that
of micro-batches changes what is learned.

Axes: B samples of the global batch.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from trainables.errors import out_of_memory
from trainables.monitoring.layers import Layers
from trainables.parallel.strategies import Strategy, largest_share, split_batch
from trainables.trainer.forward_backward import ForwardBackward
from trainables.training_state.divergence import Rollback
from trainables.training_state.loop_state import TrainingState
from trainables.training_state.micro_batch_halving import AgreedOutOfMemory, MicroBatching
from trainables.training_state.tallies import empty, tally_of

SCALE_CHECKS = 50  # updates between checks of float16's loss scale, which wait for the GPU
FREE = ("cpu",)  # devices whose values can be read without waiting
CAREFUL = 2  # updates after which an order's memory use is settled: the optimizer's state is there


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
    elements: Tensor = field(init=False)  # number of losses in the last update
    norms: Tensor = field(init=False)  # tally of finite gradient norms
    clipped: Tensor = field(init=False)  # tally of the clipped share
    seen: dict[str, float] = field(default_factory=dict, init=False)  # the layers' last statistics

    def __post_init__(self) -> None:
        self.weights = [weight for weight in self.passes.model.parameters() if weight.requires_grad]
        self.norms, self.clipped = empty(self._device), empty(self._device)

    def run(self, at_B: Tensor) -> Tensor:
        """Update the weights; return this rank's tally of losses.

        Raises:
            Rollback: the update was bad; the weights are unchanged.
            Diverged: training cannot continue.
            TooLarge: memory ran out, and the other ranks could not be told.
        """
        # Dividing by the expected number of elements beforehand keeps float16 gradients in range;
        # `_divide_by_true_count` corrects by the true number.
        expected = max(1, round(len(at_B) * self.state.loop_state.elements_per_sample))
        tally = self._compute_gradients(at_B, self.strategy.dp_size / expected)
        with self.passes.clock.phase("communication"):
            total = self.strategy.reduce_loss_sum(tally, self.passes.model)
        self.elements = total[1]
        with self.passes.clock.phase("optimizer"):
            self._divide_by_true_count(len(at_B), expected, total[1])
            updated = self._step(total)
        self.strategy.after_update(self.passes.unwrapped_model)
        self.number += 1
        self.strategy.worker.beat()
        return tally if updated else torch.zeros_like(tally)  # a skipped update does not count

    def count_elements(self) -> float:
        """Return the number of losses in the last update; this waits for the device."""
        if self.strategy.grads_synchronized:
            return self.elements.item()
        return self.strategy.all_reduce_sum(self.elements.clone()).item()

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

    def _compute_gradients(self, at_B: Tensor, scale: float) -> Tensor:
        while True:
            self._drop_gradients()
            try:
                parts = split_batch(at_B, self.strategy, self.micro_batching.count)
                return self.strategy.backward(self.passes, parts, scale, self.number < CAREFUL)
            except Exception as error:
                if not out_of_memory(error):
                    raise
                failure = error.with_traceback(None)  # its traceback holds the activations
            # All ranks shrink alike: a rank that gave up alone would leave the others waiting.
            self._shrink_micro_batches(largest_share(len(at_B), self.strategy), failure)

    def _drop_gradients(self) -> None:
        for weight in self.weights:
            weight.grad = None

    def _shrink_micro_batches(self, samples: int, failure: Exception) -> None:
        self._drop_gradients()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        if self.strategy.worker.world_size == 1 or isinstance(failure, AgreedOutOfMemory):
            self.micro_batching.halve(samples, failure)
        else:
            raise self.micro_batching.refusal(samples, failure) from failure

    def _divide_by_true_count(self, samples: int, expected: int, elements: Tensor) -> None:
        """Turn the gradients into exact means over the losses' elements."""
        self.passes.scaler.unscale_(self.state.optimizer)
        # On a GPU only the first updates read how many values a sample has: they wait anyway.
        if elements.device.type in FREE or self.number < CAREFUL:
            count = elements.item()
            if self.strategy.grads_synchronized:
                self.state.loop_state.elements_per_sample = max(count, 1.0) / samples
            if count == expected:
                return
        if gradients := self._current_gradients():
            ratio = expected / elements.clamp(min=1)
            torch._foreach_mul_(gradients, ratio.to(gradients[0].device, gradients[0].dtype))

    def _step(self, total: Tensor) -> bool:
        """Step the optimizer, unless the update is bad; return whether the weights were updated."""
        training = self.strategy.worker.training
        sampled = self.layers is not None and self.number % training.log_layers_every == 0
        if self.layers is not None and sampled:
            self.layers.before_step()
        norm = None if training.clip is None else self._clip(training.clip)
        if self.state.spike_detector is not None and not self._is_good(total, norm):
            self.passes.scaler.update()  # after unscaling it expects a step or this call
            return False
        self.passes.scaler.step(self.state.optimizer)
        self.passes.scaler.update()
        if self.number % SCALE_CHECKS == 0:
            self.passes.scaler.check()
        if self.layers is not None and sampled:
            self.seen = self.layers.after_step()
        if self.state.average is not None:
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
                self.strategy.norm(self._current_gradients()) if norm is None else norm
            )
        verdict = self.state.spike_detector.judge(
            float(total[0] / total[1].clamp(min=1)), norm_value
        )
        if verdict == "rollback":
            self.passes.scaler.update()
            raise Rollback
        return verdict == "go"

    def _current_gradients(self) -> list[Tensor]:
        carrier = self.strategy.loss_sum_param(self.passes.model)
        return self.strategy.gradients([item for item in self.weights if item is not carrier])
