"""How fast searchers improve on the best value, as `hposvc.state.prospects` forecasts it.

The constants come from searches on other problems (benchmarks/prospects.py).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """How searchers of one type improve.

    Before a sweep, its rate is known as if `improvements` had been seen over `exposure`, a
    difference of logarithms of numbers of trials.
    """

    improvements: float
    exposure: float
    width: float  # of the gain, in leads
    shape: float  # the lower, the more unlike are gains


WITHOUT_RESULTS = Pace(8.7, 7.9, 0.38, 0.92)
LEARNING = Pace(13.3, 4.4, 0.46, 0.71)
GAUSSIAN_PROCESS = Pace(4.3, 0.38, 0.67, 0.43)
