"""Learning-rate schedules, as factors by the trial's progress, and scaling with the batch size.

Sources: cosine, Loshchilov & Hutter, SGDR (2017), equation 5 without restarts; one_cycle, Smith &
Topin, Super-Convergence (2018), with torch's cosine annealing and without its cycle of momentum;
polynomial, You et al., Large Batch Training of Convolutional Networks (2017), power 2; wsd, Hu et
al., MiniCPM (2024), whose last part is 1 - sqrt as in Haegele et al., Scaling Laws and
Compute-Optimal Training Beyond Fixed Training Durations (2024); warm-up, Goyal et al.,
Accurate, Large Minibatch SGD (2017), section 2.2.
"""

import math
from collections.abc import Mapping
from typing import Literal

ScheduleName = Literal["constant", "linear", "cosine", "one_cycle", "polynomial", "wsd"]
ScalingRule = Literal["none", "linear", "sqrt"]

START = 1 / 25  # a warm-up's first factor, as in OneCycleLR: an update with 0 would be lost
RISE = 0.3  # one_cycle's rising share if no warm-up is given, as in OneCycleLR
POWER = 2
DECAY = 0.2  # wsd's decaying share of the trial; both papers find 0.1 to 0.2 enough

SHRINK = 0.1  # Plateau's values are those of torch's ReduceLROnPlateau
PATIENCE = 10  # reports
THRESHOLD = 1e-4  # of the best loss


def factor(name: ScheduleName, progress: float, warmup: float) -> float:
    """Return the factor on each learning rate at this progress of the trial; 0 only at its end.

    Args:
        progress: in [0, 1].
        warmup: in [0, 1), the share of the trial in which the factor rises linearly from START to
            1; one_cycle rises in half a cosine, for a share of RISE if this is 0.
    """
    if name == "one_cycle":
        rise = warmup or RISE
        if progress < rise:
            return 1 - (1 - START) * _cosine(progress / rise)
        return _cosine((progress - rise) / (1 - rise))
    if progress < warmup:
        return START + (1 - START) * progress / warmup
    done = (progress - warmup) / (1 - warmup)
    match name:
        case "constant":
            return 1.0
        case "linear":
            return 1 - done
        case "cosine":
            return _cosine(done)
        case "polynomial":
            return float((1 - done) ** POWER)
        case "wsd":
            begin = max(1 - DECAY, warmup)
            return 1 - math.sqrt(max(progress - begin, 0) / (1 - begin))


def scale_lr(rule: ScalingRule, batch: int, lr_base_batch: int) -> float:
    """Return the factor on a learning rate that was chosen for updates of lr_base_batch samples.

    Sources: linear, Goyal et al. (2017), section 2.1, for SGD; sqrt, Krizhevsky, One Weird Trick
    for Parallelizing CNNs (2014), section 5, and for Adam, Malladi et al., On the SDEs and Scaling
    Rules for Adaptive Gradient Algorithms (2022).
    """
    match rule:
        case "none":
            return 1.0
        case "linear":
            return batch / lr_base_batch
        case "sqrt":
            return math.sqrt(batch / lr_base_batch)


class Plateau:
    """A factor that falls tenfold once more than PATIENCE reports in a row bring no better loss.

    This works like torch's ReduceLROnPlateau with its defaults, but without an optimizer, and with
    a threshold that also suits losses below 0 (negated scores): there torch counts every repetition
    of the best loss as an improvement.
    """

    def __init__(self) -> None:
        self.factor = 1.0
        self.best = math.inf
        self.waited = 0  # reports since the best one, or since the last fall

    def observe(self, loss: float) -> None:
        """Count the loss of one more report; NaN is no improvement."""
        # A share of an infinite best loss would be NaN.
        margin = 0.0 if math.isinf(self.best) else THRESHOLD * abs(self.best)
        if loss < self.best - margin:
            self.best, self.waited = loss, 0
            return
        self.waited += 1
        if self.waited > PATIENCE:
            self.factor, self.waited = self.factor * SHRINK, 0

    def state_dict(self) -> dict[str, float]:
        """Return the state that another Plateau needs to continue."""
        return {"factor": self.factor, "best": self.best, "waited": self.waited}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Continue from the state of another Plateau."""
        self.factor, self.best = state["factor"], state["best"]
        self.waited = int(state["waited"])


def _cosine(done: float) -> float:
    """Return half a cosine, from 1 to 0."""
    return 0.5 * (1 + math.cos(math.pi * done))
