"""All problems by name, by family, and with what is known of them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from problems import conditional, continuous, mixed
from problems.problem import Problem
from problems.surrogate import DATA, Surrogate
from problems.trainings import TRAININGS

TUNING = [
    Problem(name, "tuning", training.space, Surrogate(training.space, name))
    for name, training in TRAININGS.items()
]
_NOISELESS = {
    one.name: one for one in (*continuous.PROBLEMS, *mixed.PROBLEMS, *conditional.PROBLEMS, *TUNING)
}


def noisy(name: str, noise: float) -> Problem:
    return replace(_NOISELESS[name], name=f"{name}_noisy", family="noisy", noise=noise)


NOISY = [
    noisy("hartmann6", 0.15),
    noisy("valley", 0.05),
    noisy("perceptron_digits", 0.05),
    noisy("forest_fair", 0.002),
]


@dataclass(frozen=True)
class Reference:
    """What a regret is measured against."""

    best: float  # the lowest loss that is known
    random: float  # median over seeds of random search's incumbent after 60 evaluations


@dataclass(frozen=True)
class Catalogue:
    """Problems by name, and what is known of them."""

    problems: Mapping[str, Problem]
    file: Path  # has the references, once `problems.reference` has worked them out

    @classmethod
    def of(cls, problems: Iterable[Problem], file: Path) -> "Catalogue":
        return cls({one.name: one for one in problems}, file)

    @cached_property
    def families(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.family for one in self.problems.values()))

    @cached_property
    def references(self) -> dict[str, Reference]:
        known = json.loads(self.file.read_text()) if self.file.exists() else {}
        return {name: Reference(**one) for name, one in known.items()}


OWN = Catalogue.of([*_NOISELESS.values(), *NOISY], DATA / "references.json")
PROBLEMS = OWN.problems


@cache
def find(name: Literal["own", "public"]) -> Catalogue:
    """Return our own problems, or those of `problems.public`."""
    if name == "own":
        return OWN
    from problems.public import catalogue  # which takes packages

    return catalogue()
