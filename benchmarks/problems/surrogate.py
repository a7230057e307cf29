"""A real training's loss as small networks predict it, so that it costs microseconds.

Axes: E networks, C configurations, F features, W units of a layer.
What they were fitted to is in `make`; each file also says how well they predict what they were not
fitted to (`holdout_r2`, of the scaled loss, and `holdout_rank_correlation`).
"""

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from problems.problem import Array, Params, features
from searchers import Space

DATA = Path(__file__).parent / "data"
FLOOR = 0.1  # how far below the lowest loss a prediction can come, as a share of median - lowest


@dataclass(frozen=True)
class Scale:
    """Losses to standardized logarithms of their distance from a floor, and back.

    The logarithm makes room near the best losses, where searches end; and no prediction is below
    the floor.
    """

    floor: float
    mean: float
    deviation: float

    @classmethod
    def of(cls, losses: Array) -> "Scale":
        lowest = float(losses.min())
        floor = lowest - FLOOR * (float(np.median(losses)) - lowest)
        logs = np.log(losses - floor)
        return cls(floor, float(logs.mean()), float(logs.std()))

    def forward(self, losses: Array) -> Array:
        return (np.log(losses - self.floor) - self.mean) / self.deviation

    def backward(self, z: Array) -> Array:
        return self.floor + np.exp(self.mean + self.deviation * z)


@dataclass(frozen=True)
class Surrogate:
    """Networks of rectified units whose mean is the scaled loss."""

    space: Space
    name: str

    def __call__(self, params: Params) -> float:
        return float(self.losses([params])[0])

    def losses(self, configurations: list[Params]) -> Array:
        """The losses of C configurations."""
        h_ECW = features(self.space, configurations)[None]
        for layer, (weight, bias) in enumerate(self._layers):
            h_ECW = h_ECW @ weight + bias[:, None]
            h_ECW = np.maximum(h_ECW, 0.0) if layer < len(self._layers) - 1 else h_ECW
        return self._scale.backward(h_ECW[:, :, 0].mean(axis=0))

    @cached_property
    def _layers(self) -> list[tuple[Array, Array]]:
        file = _read(self.name)
        return [
            (file[f"weight{layer}"].astype(float), file[f"bias{layer}"].astype(float))
            for layer in range(3)
        ]

    @cached_property
    def _scale(self) -> Scale:
        return Scale(*_read(self.name)["scale"].tolist())


@cache
def _read(name: str) -> dict[str, Array]:
    with np.load(DATA / f"{name}.npz") as file:
        return {key: file[key] for key in file.files}
