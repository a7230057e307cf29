"""The models that take turns, what they learn, and their fits as they stand in the notes.

Axes: N rows of an outcome.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.random import Generator

from searchers.gp.kernels import Array, Index
from searchers.gp.model import (
    Hyperparameters,
    Posterior,
    Prior,
    Rows,
    dimension_scaled_prior,
    fit,
    short_prior,
)
from searchers.gp.warping import TailCompression, Warp, YeoJohnson
from searchers.searcher import Observation
from searchers.values import is_number

ALWAYS_BELOW = 40  # results up to which any news is worth a new fit
GROWTH = 1.05  # how much more than the last fit had makes a new one due
FIT_ROWS = 100  # a fit costs O(rows^3) some twenty times; more rows change it little


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
PROBE = Model("probe", TailCompression.fit, short_prior)  # of looks into one category


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


@dataclass(frozen=True)
class Outcome:
    """What a model is to learn of one outcome."""

    name: str  # in the notes
    model: Model
    rows: Rows
    prior: Prior
    first_N: Array  # where there are too many rows for a fit, the lowest in this come first

    def fitted(self, history: Sequence[Observation], trials: int, rng: Generator) -> Fit:
        """The last fit that the history notes while no new one is due, else one that starts there.

        Args:
            history: whose notes tell of earlier fits.
            trials: how many results there are, of which the rows may be a part.
            rng: for the rows to fit on, and the fit.
        """
        rows = self.rows.take(best_and_random(self.first_N, FIT_ROWS, rng))
        last = last_fit(history, self.model, rows.kernel.parameters, self.name)
        if last is not None and not last.is_due(trials):
            return last
        start = None if last is None else last.hyperparameters
        return Fit(fit(rows, self.prior, start, rng), trials)

    def learned(
        self, history: Sequence[Observation], trials: int, rng: Generator
    ) -> tuple[Posterior, Fit]:
        """What all rows say under the fit, and the fit; see `fitted`."""
        fitted = self.fitted(history, trials, rng)
        return Posterior.of(self.rows, fitted.hyperparameters), fitted


def best_and_random(output_N: Array, most: int, rng: Generator) -> Index:
    """At most that many rows to fit on: the lowest half, and of the others a random choice."""
    if len(output_N) <= most:
        return np.arange(len(output_N))
    order_N = np.argsort(output_N, kind="stable")
    rest = rng.choice(order_N[most // 2 :], most - most // 2, replace=False)
    return np.append(order_N[: most // 2], rest)


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
