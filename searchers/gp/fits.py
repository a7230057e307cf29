"""The models that take turns, and their fits as they stand in the notes of a history."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from searchers.gp.kernels import Array
from searchers.gp.model import Hyperparameters, Prior, dimension_scaled_prior, short_prior
from searchers.gp.warping import TailCompression, Warp, YeoJohnson
from searchers.searcher import Observation
from searchers.values import is_number

ALWAYS_BELOW = 40  # results up to which any news is worth a new fit
GROWTH = 1.05  # how much more than the last fit had makes a new one due


@dataclass(frozen=True)
class Model:
    """One of the models that take turns; `name` marks its fits in the notes."""

    name: str
    warp: Callable[[Array], Warp]
    prior: Callable[[int], Prior]


MODELS = (
    Model("tail", TailCompression.fit, dimension_scaled_prior),
    Model("power", YeoJohnson.fit, short_prior),
)


@dataclass(frozen=True)
class Fit:
    """Hyperparameters, and how many results there were; a trial has one at each rung."""

    hyperparameters: Hyperparameters
    trials: int

    def is_due(self, trials: int) -> bool:
        """Whether a new fit is, now that there are so many results."""
        if trials < ALWAYS_BELOW:
            return trials != self.trials
        return not self.trials <= trials < GROWTH * self.trials

    def note(self) -> dict[str, object]:
        """The fit as JSON; floats survive it exactly."""
        return {
            "trials": self.trials,
            "lengthscales": list(self.hyperparameters.lengthscales),
            "noise": self.hyperparameters.noise,
            "scale": self.hyperparameters.scale,
        }


def last_fit(
    history: Sequence[Observation], model: Model, parameters: int, outcome: str
) -> Fit | None:
    """The model's newest fit to an outcome that the notes tell of; None: none for such a space.

    A note has the model's name as `model`, and in `fits` one for each outcome.
    """
    for seen in reversed(history):
        fits = seen.note.get("fits")
        if seen.note.get("model") == model.name and isinstance(fits, Mapping):
            note = fits.get(outcome)
            if isinstance(note, Mapping):
                return _read(note, parameters)
    return None


def _read(note: Mapping[str, object], parameters: int) -> Fit | None:
    """None: a note that we did not write, or wrote for another space."""
    lengthscales, trials = note.get("lengthscales"), note.get("trials")
    if not isinstance(lengthscales, Sequence) or not isinstance(trials, int):
        return None
    numbers = [*lengthscales, note.get("noise"), note.get("scale")]
    if len(numbers) != parameters + 2 or not all(is_number(x) and x > 0.0 for x in numbers):
        return None
    *scales, noise, scale = (float(cast(float, x)) for x in numbers)
    return Fit(Hyperparameters(tuple(scales), noise, scale), trials)
