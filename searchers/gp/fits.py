"""The models that take turns, the outcomes that they learn, and their fits in the notes.

Axes: N rows of an outcome.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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

ALWAYS_REFIT_BELOW = 40  # with fewer results, every new one brings a new fit
REFIT_GROWTH = 1.05  # ratio of results to those of the last fit at which a new fit is due
# A fit costs O(rows^3) some twenty times. All 240 gained nothing (benchmarks/gp-experiments.md).
FIT_ROWS = 100


@dataclass(frozen=True)
class Model:
    """A model that takes turns with others; `name` marks its fits in the notes."""

    name: str
    warp: Callable[[Array], Warp]
    prior: Callable[[int], Prior]
    in_logarithms: bool = False  # whether the warp is one of the logarithms of losses

    @property
    def of_logarithms(self) -> "Model":
        """This model, fitted to the logarithms of losses."""
        return replace(self, name=f"{self.name} of logarithms", in_logarithms=True)


MODELS = (
    Model("tail", TailCompression.fit, dimension_scaled_prior),
    Model("power", YeoJohnson.fit, short_prior),
)
PROBE = Model("probe", TailCompression.fit, short_prior)  # for proposals within one category


@dataclass(frozen=True)
class Fit:
    """Hyperparameters, and the number of results that they were fitted to.

    A trial has a result at each rung.
    """

    hyperparameters: Hyperparameters
    trials: int

    def is_due(self, trials: int) -> bool:
        """Return whether a new fit is due, now that there are `trials` results."""
        if trials < ALWAYS_REFIT_BELOW:
            return trials != self.trials
        return not self.trials <= trials < REFIT_GROWTH * self.trials

    def note(self) -> dict[str, object]:
        """Return the fit as JSON, in which floats are exact."""
        return {
            "trials": self.trials,
            "lengthscales": list(self.hyperparameters.lengthscales),
            "noise": self.hyperparameters.noise,
            "scale": self.hyperparameters.scale,
        }


@dataclass(frozen=True)
class FitTask:
    """An outcome to learn: its rows, and the model and prior to learn them with."""

    name: str  # key in the notes
    model: Model
    rows: Rows
    prior: Prior
    first_N: Array  # a fit with too many rows prefers those that are lowest in this

    def fitted(self, history: Sequence[Observation], trials: int, rng: Generator) -> Fit:
        """Return the last fit in the notes unless a new one is due, else a fit that starts there.

        Args:
            history: its notes hold earlier fits.
            trials: the number of results, of which the rows may be a part.
            rng: for the choice of rows to fit on, and the fit.
        """
        rows = self.rows.take(best_and_random(self.first_N, FIT_ROWS, rng))
        last = last_fit(history, self.model, rows.kernel.parameters, self.name)
        if last is not None and not last.is_due(trials):
            return last
        start = None if last is None else last.hyperparameters
        return Fit(fit(rows, self.prior, start, rng), trials)

    def condition(
        self, history: Sequence[Observation], trials: int, rng: Generator
    ) -> tuple[Posterior, Fit]:
        """Return the posterior of all rows under the fit, and the fit; see `fitted`."""
        fitted = self.fitted(history, trials, rng)
        return Posterior.of(self.rows, fitted.hyperparameters), fitted


def best_and_random(output_N: Array, max_rows: int, rng: Generator) -> Index:
    """Return at most `max_rows` rows to fit on: the lowest, and as many of the others at random."""
    if len(output_N) <= max_rows:
        return np.arange(len(output_N))
    order_N = np.argsort(output_N, kind="stable")
    drawn = rng.choice(order_N[max_rows // 2 :], max_rows - max_rows // 2, replace=False)
    return np.append(order_N[: max_rows // 2], drawn)


def last_fit(
    history: Sequence[Observation], model: Model, parameters: int, outcome: str
) -> Fit | None:
    """Return the newest fit of a model to an outcome in the notes; None: none for such a space.

    A note has the model's name as `model`, and in `fits` one for each outcome.
    """
    for seen in reversed(history):
        fits = seen.note.get("fits")
        if seen.note.get("model") == model.name and isinstance(fits, Mapping):
            note = fits.get(outcome)
            if isinstance(note, Mapping):
                return _read_fit(note, parameters)
    return None


def _read_fit(note: Mapping[str, object], parameters: int) -> Fit | None:
    """Return the fit in a note; None: the note is not ours, or is for another space."""
    lengthscales, trials = note.get("lengthscales"), note.get("trials")
    if not isinstance(lengthscales, Sequence) or not isinstance(trials, int):
        return None
    numbers = [*lengthscales, note.get("noise"), note.get("scale")]
    if len(numbers) != parameters + 2 or not all(is_number(x) and x > 0.0 for x in numbers):
        return None
    *scales, noise, scale = (float(cast(float, x)) for x in numbers)
    return Fit(Hyperparameters(tuple(scales), noise, scale), trials)
