"""Which problems of the public suites are searched, and who searches them.

All functions of a suite, or every tenth where there are 54 or 55 and an ask costs more; numbers of
limits come in sixes, so that a tenth has several of them. Instances are the last ones of a suite,
of `bbob-biobj` the last whose best volume is known. None was looked at before.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from suites.players import LIMITED, PLAIN, TWO_LOSSES
from suites.problem import Problem

CLASSES = ("separable", "moderate", "ill-conditioned", "multi-modal", "weak structure")
LAST_OF_CLASS = (5, 9, 14, 19, 24)
NOISES = ("Gaussian noise", "uniform noise", "Cauchy noise")
LIMITS = ("1 limit", "3 limits", "9 limits", *["more limits"] * 3)


@dataclass(frozen=True)
class Key:
    """Names a problem of a suite; building it takes the suite's package."""

    suite: str
    function: int
    dimensions: int
    instance: int

    @property
    def function_name(self) -> str:
        return f"{self.suite} f{self.function} d{self.dimensions}"

    @property
    def name(self) -> str:
        return f"{self.function_name} i{self.instance}"

    @property
    def group(self) -> str:
        """What the function is like, as its suite says; MA-BBOB and two losses: its dimensions."""
        if self.suite in ("bbob", "bbob-mixint"):
            return CLASSES[bisect_left(LAST_OF_CLASS, self.function)]
        if self.suite == "bbob-noisy":
            return NOISES[(self.function - 101) % 3]
        if self.suite == "bbob-constrained":
            return LIMITS[(self.function - 1) % 6]
        return f"{self.dimensions} dimensions"


@dataclass(frozen=True)
class Suite:
    """The part of a public suite that is searched."""

    functions: Sequence[int]
    dimensions: Sequence[int]
    instances: Sequence[int]
    methods: Sequence[str]
    highest: float = 2.0  # the power of ten of the easiest target
    lowest: float = -8.0

    def keys(self, suite: str) -> list[Key]:
        """Return all its problems, the first instance of all before the next."""
        return [
            Key(suite, function, dimensions, instance)
            for instance in self.instances
            for dimensions in self.dimensions
            for function in self.functions
        ]


SUITES = {
    "bbob": Suite(range(1, 25), (2, 5), (80, 79), PLAIN),
    "ma-bbob": Suite(range(1, 21), (2, 5), (0,), PLAIN),
    "bbob-mixint": Suite(range(1, 25), (5, 10), (15,), PLAIN),
    "bbob-noisy": Suite(range(101, 131), (2, 5), (15,), PLAIN),
    "bbob-constrained": Suite(range(1, 55, 10), (2, 5), (15,), LIMITED),
    "bbob-biobj": Suite(range(1, 56, 10), (2, 5), (10,), TWO_LOSSES, 0.0, -5.0),
}


def build(key: Key) -> Problem:
    """Return the problem.

    Raises:
        ImportError: the package of the suite is not installed.
    """
    if key.suite == "ma-bbob":
        from suites.affine import affine

        return affine(key.function, key.dimensions)
    from suites import coco

    return coco.KINDS[key.suite](key.function, key.dimensions, key.instance)
