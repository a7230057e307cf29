"""One step of the optimizer on a global batch.

Its gradient is that of the mean loss over all elements of the batch, exactly: each place adds up
its own losses, and one reduction divides by the global count. So neither the number of ranks nor
that of micro-batches changes what is learned.

Axes: B samples of the global batch.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from trainables.fitting import lone
from trainables.fitting.divergence import RollBack
from trainables.fitting.memory import AgreedOutOfMemory, Split
from trainables.fitting.passes import Passes
from trainables.fitting.state import TrainingState
from trainables.fitting.tallies import empty, tally_of
from trainables.parallel.strategies import Strategy, deal, most
from trainables.scripts.endings import out_of_memory
from trainables.watching.layers import Layers

SCALE_CHECKS = 50  # updates between looks at float16's scale, which wait for the GPU
CAREFUL = 2  # updates of an order after which memory is taken as it will be: the optimizer's is in


@dataclass
class Update:
    """What an update works on; `run` makes one."""

    strategy: Strategy
    passes: Passes
    state: TrainingState
    split: Split
    layers: Layers | None
    number: int = 0  # updates that this order has tried
    weights: list[nn.Parameter] = field(init=False)  # that get a gradient
    norms: Tensor = field(init=False)  # tally of gradient norms, where they are known
    clipped: Tensor = field(init=False)  # tally of the share that was clipped
    seen: dict[str, float] = field(default_factory=dict, init=False)  # the last look at the layers

    def __post_init__(self) -> None:
        self.weights = [each for each in self.passes.model.parameters() if each.requires_grad]
        self.norms, self.clipped = empty(self._device), empty(self._device)

    def run(self, at_B: Tensor) -> Tensor:
        """Update the weights; returns this place's tally of losses.

        Raises:
            RollBack: the update was bad; the weights are as they were.
            Diverged: there is no way on.
            TooLarge: memory ran out where the other ranks could not be told.
        """
        # The mean already, and fit for float16, where samples have as many values as before.
        expected = max(1, round(len(at_B) * self.state.marks.each))
        tally = self._gradients(at_B, self.strategy.places / expected)
        with self.passes.clock.part("communication"):
            total = self.strategy.total(tally, self.passes.model)
        with self.passes.clock.part("optimizer"):
            self._scale(len(at_B), expected, total[1])
            taken = self._step(total)
        self.strategy.after_update(self.passes.bare)
        self.number += 1
        self.strategy.worker.beat()
        return tally if taken else torch.zeros_like(tally)  # as if it had not been

    def metrics(self) -> dict[str, float]:
        """What happened since the last report; starts afresh."""
        found = {**self.seen, "train/micro_batches": float(self.split.parts)}
        for name, tally in (("grad_norm", self.norms), ("clipped", self.clipped)):
            total, count = tally.tolist()
            if count:
                found[f"train/{name}"] = total / count
            tally.zero_()
        if self.state.guard is not None:
            found["train/skipped"] = float(self.state.guard.skipped)
            found["train/rollbacks"] = float(self.state.guard.rollbacks)
        if self.passes.scaler.is_enabled():
            found["train/loss_scale"] = self.passes.scaler.get_scale()
        self.seen = {}
        return found

    @property
    def _device(self) -> torch.device:
        return self.strategy.worker.device

    def _gradients(self, at_B: Tensor, scale: float) -> Tensor:
        while True:
            self._forget()
            try:
                parts = deal(at_B, self.strategy, self.split.parts)
                return self.strategy.backward(self.passes, parts, scale, self.number < CAREFUL)
            except Exception as error:
                if lone.TOLD in f"{error}":
                    raise lone.refusal(
                        len(at_B), self.passes, self.strategy, self.split.parts
                    ) from error
                if not out_of_memory(error):
                    raise
                failure = error.with_traceback(None)  # which holds the activations
            # Of all places alike: one that gave up alone would leave the others waiting.
            self._make_room(most(at_B, self.strategy), failure)

    def _forget(self) -> None:
        for weight in self.weights:
            weight.grad = None

    def _make_room(self, samples: int, failure: Exception) -> None:
        self._forget()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        if self.strategy.worker.world_size == 1 or isinstance(failure, AgreedOutOfMemory):
            self.split.halve(samples, failure)
        else:
            raise self.split.refusal(samples, failure) from failure

    def _scale(self, samples: int, expected: int, elements: Tensor) -> None:
        """Make the gradients exact means of the losses' elements."""
        self.passes.scaler.unscale_(self.state.optimizer)
        if elements.device.type == "cpu":  # elsewhere to look would be to wait
            found = elements.item()
            if self.strategy.alike:
                self.state.marks.each = max(found, 1.0) / samples
            if found == expected:
                return
        if gradients := self._held():
            ratio = expected / elements.clamp(min=1)
            torch._foreach_mul_(gradients, ratio.to(gradients[0].device, gradients[0].dtype))

    def _step(self, total: Tensor) -> bool:
        """Whether the weights were updated."""
        training = self.strategy.worker.training
        looked = self.layers is not None and self.number % training.watch == 0
        if self.layers is not None and looked:
            self.layers.before_step()
        norm = None if training.clip is None else self._clip(training.clip)
        if self.state.guard is not None and not self._is_good(total, norm):
            self.passes.scaler.update()  # it has unscaled, and expects a step or this
            return False
        self.passes.scaler.step(self.state.optimizer)
        self.passes.scaler.update()
        if self.number % SCALE_CHECKS == 0:
            self.passes.scaler.check()
        if self.layers is not None and looked:
            self.seen = self.layers.after_step()
        if self.state.average is not None:
            self.state.average.update()
        return True

    def _clip(self, most: float) -> Tensor:
        """Clip the gradients; returns their norm before."""
        by = self.strategy.worker.training.clip_by
        cut = self.strategy.clip(self.passes.bare, most, by)
        known = cut.norm.isfinite().to(self._device)  # float16 overflows on its way to a scale
        for tally, value in ((self.norms, cut.norm), (self.clipped, cut.clipped)):
            tally += torch.where(known, tally_of(value.to(self._device)), 0.0)
        return cut.norm

    def _is_good(self, total: Tensor, norm: Tensor | None) -> bool:
        """Whether to take the step; waits for the device."""
        assert self.state.guard is not None
        if self.passes.scaler.is_enabled():
            size = 0.0  # the scaler judges gradients: infinite ones are how it finds its scale
        else:
            size = float(self.strategy.norm(self._held()) if norm is None else norm)
        verdict = self.state.guard.judge(float(total[0] / total[1].clamp(min=1)), size)
        if verdict == "rollback":
            self.passes.scaler.update()
            raise RollBack
        return verdict == "go"

    def _held(self) -> list[Tensor]:
        carrier = self.strategy.carrier(self.passes.model)
        return self.strategy.gradients([each for each in self.weights if each is not carrier])
