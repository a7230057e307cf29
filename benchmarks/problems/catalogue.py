"""All problems by name, by family, and with what is known of them."""

import json
from dataclasses import dataclass, replace
from functools import cache

from problems import conditional, continuous, mixed
from problems.problem import Problem
from problems.surrogate import DATA, Surrogate
from problems.trainings import TRAININGS

REFERENCES = DATA / "references.json"
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
PROBLEMS = {**_NOISELESS, **{one.name: one for one in NOISY}}
FAMILIES = tuple(dict.fromkeys(one.family for one in PROBLEMS.values()))


@dataclass(frozen=True)
class Reference:
    """What a regret is measured against."""

    best: float  # the lowest loss that is known
    random: float  # median over seeds of random search's incumbent after 60 evaluations


@cache
def references() -> dict[str, Reference]:
    return {name: Reference(**one) for name, one in json.loads(REFERENCES.read_text()).items()}
