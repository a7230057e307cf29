"""Whether the best configuration is really better than the default, or only luckier.

The best of several was chosen because it looked best, so an ordinary test would call luck a gain
too often. This one asks how often the luckiest of so many would come out as far ahead.
Source: Dunnett, A multiple comparison procedure for comparing several treatments with a control,
Journal of the American Statistical Association 50 (1955), one-sided.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv, ndtr, ndtri

from hposvc.analysis.noise import of_repeats

LEVEL = 0.03  # share of sweeps without any gain in which one is claimed
NODES = (np.arange(200) + 0.5) / 200  # midpoints of equal shares of a distribution


@dataclass(frozen=True)
class Gain:
    """A comparison of the best of several configurations with the default."""

    size: float  # of the best mean over the default's; positive is better
    luck: float  # probability that luck alone gives the luckiest as much

    @property
    def claimed(self) -> bool:
        """Whether the gain is more than noise."""
        return self.size > 0 and self.luck < LEVEL


def gain(finalists: Sequence[Sequence[float]], default: Sequence[float]) -> Gain | None:
    """Compare losses of new runs of each finalist with those of the default.

    None: the noise is not known, as no configuration has two runs.
    """
    noise = of_repeats([*finalists, default])
    rivals = [values for values in finalists if values]
    if noise is None or not default or not rivals:
        return None
    control = float(np.mean(default))
    leads = [
        (control - float(np.mean(values)), 1 / math.sqrt(1 / len(values) + 1 / len(default)))
        for values in rivals
    ]
    lead, weight = max(leads)
    if noise.deviation == 0:
        return Gain(lead, 0.0 if lead > 0 else 1.0)
    counts = [len(values) for values in rivals]
    statistic = lead * weight / noise.deviation
    return Gain(lead, luckiest(statistic, counts, len(default), noise.freedom))


def luckiest(statistic: float, counts: Sequence[int], control: int, freedom: int) -> float:
    """Return how probable it is that the luckiest of equals comes out at least this far ahead.

    Args:
        statistic: lead over the control, in estimated deviations of the difference.
        counts: runs of each rival.
        control: runs of the control.
        freedom: degrees of freedom of the estimated noise.
    """
    scale_S1 = np.sqrt(2 * gammaincinv(freedom / 2, NODES) / freedom)[:, None]  # of the noise
    shift_Z = ndtri(NODES) / math.sqrt(control)  # luck of the control
    log_SZ = np.zeros((len(NODES), len(NODES)))
    for runs, rivals in Counter(counts).items():
        reach = statistic * scale_S1 * math.sqrt(1 / runs + 1 / control) + shift_Z
        log_SZ += rivals * np.log(np.maximum(ndtr(reach * math.sqrt(runs)), 1e-300))
    return float(np.clip(1 - np.exp(log_SZ).mean(), 0.0, 1.0))
