"""An exponential moving average of a model's weights, to evaluate and to keep in their place.

Sources: Polyak & Juditsky, Acceleration of Stochastic Approximation by Averaging (1992); the decay
that grows at first, so that the start weighs little, is tf.train.ExponentialMovingAverage's.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainables.optim.norms import part


class Ema:
    """Averages of the weights that are trained, in float32 or finer; buffers stay the model's own.

    A DTensor's average is dealt out as it is. Make it of the sharded model: it keeps hold of the
    weights that it averages, as an optimizer does.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self._model = model
        self._weights = {
            name: weight for name, weight in model.named_parameters() if weight.requires_grad
        }
        self._averages = {
            name: weight.detach().to(torch.promote_types(weight.dtype, torch.float32), copy=True)
            for name, weight in self._weights.items()
        }

    @torch.no_grad()
    def update(self) -> None:
        """Take the weights as they are now into the averages; call it after each update."""
        averages = [part(average) for average in self._averages.values()]
        weights = [
            part(weight).to(average.dtype)
            for weight, average in zip(self._weights.values(), averages, strict=True)
        ]
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        get_ema_multi_avg_fn(decay)(averages, weights, self.updates)
        self.updates += 1

    @contextmanager
    def applied(self) -> Iterator[None]:
        """With the averages in the model's place; its own weights come back bit by bit."""
        own = {name: weight.detach().clone() for name, weight in self._weights.items()}
        try:
            self._put(self._averages)
            yield
        finally:
            self._put(own)

    def state_dict(self) -> dict[str, Any]:
        """The averages and their age; the tensors are the live ones, as torch's state_dicts'."""
        return {"updates": self.updates, "averages": dict(self._averages)}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from another one's state.

        Raises:
            ValueError: it is that of another model.
        """
        found = state["averages"]
        if differing := sorted(self._averages.keys() ^ found.keys()):
            raise ValueError(
                f"the checkpoint's averages are of another model: only one of the two has "
                f"{', '.join(differing[:3])}; keep the model of the trial that it came from"
            )
        for name, average in self._averages.items():
            average.copy_(found[name])
        self.updates = state["updates"]

    @torch.no_grad()
    def _put(self, values: Mapping[str, Tensor]) -> None:
        for name, weight in self._weights.items():
            weight.copy_(values[name])
        # Else a forward pass would use what an earlier one gathered of the old values.
        for module in self._model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
