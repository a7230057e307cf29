"""An exponential moving average of a model's weights, to evaluate and save in their place.

Sources: Polyak & Juditsky, Acceleration of Stochastic Approximation by Averaging (1992); the decay,
growing at first so that the initial weights count little, is tf.train.ExponentialMovingAverage's.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainables.modules import reshard
from trainables.optim.norms import local_part

RUNNING = ("running_mean", "running_var")  # names of buffers in torch's norms


class Ema:
    """Averages of the trained weights, in float32 or finer, and of running statistics.

    Batch norms in a model with averaged weights see other activations than in the model itself, so
    their running means and variances are averaged too. All other buffers stay the model's own.

    A DTensor's average is sharded like the DTensor. Create an Ema of the sharded model: it holds
    references to the weights that it averages, as an optimizer does.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self._model = model
        self._weights: dict[str, Tensor] = {
            name: weight for name, weight in model.named_parameters() if weight.requires_grad
        }
        self._weights |= {
            name: buffer for name, buffer in model.named_buffers() if name.endswith(RUNNING)
        }
        self._averages = {
            name: weight.detach().to(torch.promote_types(weight.dtype, torch.float32), copy=True)
            for name, weight in self._weights.items()
        }

    @torch.no_grad()
    def update(self) -> None:
        """Update the averages with the current weights; to be called after each update."""
        averages = [local_part(average) for average in self._averages.values()]
        weights = [
            local_part(weight).to(average.dtype)
            for weight, average in zip(self._weights.values(), averages, strict=True)
        ]
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        get_ema_multi_avg_fn(decay)(averages, weights, self.updates)
        self.updates += 1

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the averages into the model within this context; restore its weights exactly on exit.

        Weights and averages are swapped, which needs no memory. Weights in 16 bits round the
        averages, so a copy of these weights is kept.
        """
        pairs = [
            (local_part(weight.detach()), local_part(self._averages[name]))
            for name, weight in self._weights.items()
        ]
        saved_16bit = [(own, own.clone()) for own, average in pairs if own.dtype != average.dtype]
        try:
            self._swap(pairs)
            yield
        finally:
            self._swap(pairs)
            self._copy_into_weights(saved_16bit)

    def state_dict(self) -> dict[str, Any]:
        """Return the averages and the number of updates; the tensors are live, as in torch."""
        return {"updates": self.updates, "averages": dict(self._averages)}

    def _swap(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Swap weights and averages, one pair after the other."""
        with torch.no_grad():
            for own, average in pairs:
                saved = own.clone()
                own.copy_(average)
                if own.dtype == average.dtype:
                    average.copy_(saved)
        self._copy_into_weights(())

    @torch.no_grad()
    def _copy_into_weights(self, values: Iterable[tuple[Tensor, Tensor]]) -> None:
        for weight, value in values:
            weight.copy_(value)
        # Otherwise a forward pass would use the old values, gathered by an earlier pass.
        reshard(self._model)
