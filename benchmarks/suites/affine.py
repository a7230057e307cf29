"""MA-BBOB: weighted sums of the 24 functions of `bbob`, with one optimum at a random place.

Weights are uniform; those below the lower of .85 and the second largest are dropped, so that at
least one function is left, and three or four as a rule. Problem N is drawn by a generator seeded
with N and the number of dimensions.

Source: Vermetten et al., MA-BBOB: A Problem Generator for Black-Box Optimization Using Affine
Combinations and Shifts, ACM TELO 5 (2025). The functions are those of the package ioh.
"""

import ioh
import numpy as np

from searchers import Float, Space
from suites.problem import Outcome, Params, Problem, above

FUNCTIONS = 24
THRESHOLD = 0.85


def affine(number: int, dimensions: int) -> Problem:
    """Return problem `number` of so many dimensions, in [-5, 5]; its lowest loss is 0."""
    rng = np.random.default_rng([number, dimensions])
    weights = rng.uniform(size=FUNCTIONS)
    weights = np.maximum(weights - min(THRESHOLD, np.sort(weights)[-2]), 0.0)
    instances = rng.integers(1, 101, size=FUNCTIONS).tolist()
    place = rng.uniform(-5.0, 5.0, dimensions)
    function = ioh.problem.ManyAffine(
        place.tolist(), (weights / weights.sum()).tolist(), instances, dimensions
    )
    names = [f"x{place}" for place in range(dimensions)]

    def evaluate(params: Params) -> Outcome:
        loss = float(function([params[name] for name in names]))
        return Outcome((loss,), loss)

    return Problem(
        space=Space({name: Float(-5.0, 5.0) for name in names}),
        evaluate=evaluate,
        gaps=above(float(function.optimum.y)),
    )
