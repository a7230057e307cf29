"""Problems of COCO's suites, as the package coco-experiment has them.

Optima are known. The noise-free loss of a noisy function is pycma's, which has the same functions
and instances. Two objectives are judged by COCO's own indicator: the hypervolume between the ideal
and the nadir point that is missing to the best known one, and before a configuration dominates the
nadir point, its distance to the region between them.

Sources: Hansen et al., COCO, Optimization Methods and Software 36 (2021); Brockhoff et al., Using
Well-Understood Single-Objective Functions in Multiobjective Black-Box Optimization Test Suites,
Evolutionary Computation 30 (2022).
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cocoex
import numpy as np
from cma import bbobbenchmarks
from numpy.typing import NDArray

from searchers import Float, Int, Space
from suites.problem import Outcome, Params, Problem, above

REGION = 5.0  # of two objectives: where COCO advises to begin; its bounds are 100
cocoex.log_level("warning")


def plain(function: int, dimensions: int, instance: int, suite: str = "bbob") -> Problem:
    """Return one of the 24 functions of `bbob`."""
    problem = _open(suite, function, dimensions, instance)
    return Problem(
        space=_space(problem),
        evaluate=lambda params: _outcome(problem(_point(params))),
        gaps=above(_lowest(problem)),
    )


def mixed(function: int, dimensions: int, instance: int) -> Problem:
    """Return one of the 24 functions of `bbob-mixint`: four parameters of five are whole."""
    return plain(function, dimensions, instance, "bbob-mixint")


def noisy(function: int, dimensions: int, instance: int) -> Problem:
    """Return one of the 30 functions of `bbob-noisy`, 101 to 130."""
    problem = _open("bbob-noisy", function, dimensions, instance)
    exact = bbobbenchmarks.dictbbob[function](instance)

    def evaluate(params: Params) -> Outcome:
        point = _point(params)
        return Outcome((float(problem(point)),), float(exact._evalfull(point)[1]))

    return Problem(
        space=_space(problem),
        evaluate=evaluate,
        gaps=above(exact.fopt),
    )


def limited(function: int, dimensions: int, instance: int) -> Problem:
    """Return one of the 54 functions of `bbob-constrained`; COCO's limits are kept at 0 or less."""
    problem = _open("bbob-constrained", function, dimensions, instance)

    def evaluate(params: Params) -> Outcome:
        point = _point(params)
        return _outcome(problem(point), problem.constraint(point))

    return Problem(
        space=_space(problem),
        evaluate=evaluate,
        gaps=above(_lowest(problem)),
    )


def two_losses(function: int, dimensions: int, instance: int) -> Problem:
    """Return one of the 55 functions of `bbob-biobj`; best volumes are known of instances to 10."""
    where = ("bbob-biobj", function, dimensions, instance)
    problem = _open(*where)
    names = [f"x{place}" for place in range(dimensions)]
    return Problem(
        space=Space({name: Float(-REGION, REGION) for name in names}),
        evaluate=lambda params: Outcome(tuple(map(float, problem(_point(params)))), 0.0),
        gaps=lambda configurations, _: _missing_volume(where, configurations),
        objectives=2,
    )


KINDS: dict[str, Callable[[int, int, int], Problem]] = {
    "bbob": plain,
    "bbob-mixint": mixed,
    "bbob-noisy": noisy,
    "bbob-constrained": limited,
    "bbob-biobj": two_losses,
}


def _open(suite: str, function: int, dimensions: int, instance: int) -> Any:
    """Return a problem, which keeps its suite alive."""
    place = function - 100 if suite == "bbob-noisy" else function
    chosen = f"function_indices: {place} dimensions: {dimensions}"
    return cocoex.Suite(suite, f"instances: {instance}", chosen)[0]


def _space(problem: Any) -> Space:
    """Return the box of a problem; its whole numbers come first."""
    whole = problem.number_of_integer_variables
    bounds = enumerate(zip(problem.lower_bounds, problem.upper_bounds, strict=True))
    return Space(
        {
            f"x{place}": Int(int(low), int(high)) if place < whole else Float(low, high)
            for place, (low, high) in bounds
        }
    )


def _point(params: Params) -> NDArray[np.float64]:
    return np.array([params[f"x{place}"] for place in range(len(params))], dtype=float)


def _outcome(loss: float, excess: Sequence[float] = ()) -> Outcome:
    return Outcome((float(loss),), float(loss), tuple(map(float, excess)))


def _lowest(problem: Any) -> float:
    """Return the optimum: COCO writes where it is into a file of the working folder."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        problem._best_parameter("print")
        (path,) = Path(folder).iterdir()
        return float(problem(np.loadtxt(path)))


def _missing_volume(
    where: tuple[str, int, int, int], configurations: Sequence[Params]
) -> list[float]:
    """Return COCO's indicator after each configuration, as its log tells it.

    The log has a line where a target was met, and at some 20 numbers of evaluations for each power
    of ten, among them 10, 25, 50 and 100; between them the last value counts.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        problem = _open(*where)
        problem.observe_with(
            cocoex.Observer("bbob-biobj", "result_folder: log log_nondominated: none")
        )
        for params in configurations:
            problem(_point(params))
        problem.free()
        lines = dict(sorted(_lines(Path(folder)), reverse=True))
    found, gap = [], np.inf
    for count in range(1, len(configurations) + 1):
        gap = lines.get(count, gap)
        found.append(float(gap))
    return found


def _lines(folder: Path) -> Iterator[tuple[int, float]]:
    """Yield evaluations and indicator of each line of a log."""
    for path in (*folder.rglob("*.dat"), *folder.rglob("*.tdat")):
        for line in path.read_text().splitlines():
            if line and not line.startswith("%"):
                count, indicator = line.split()[:2]
                yield int(count), float(indicator)
