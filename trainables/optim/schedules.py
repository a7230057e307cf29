"""The learning rate over a trial: its factor at each share of the way, and with the batch.

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

START = 1 / 25  # a warm-up's first factor, as OneCycleLR's: an update with 0 would be lost
RISE = 0.3  # one_cycle's share of rising where no warm-up is given, as OneCycleLR's
POWER = 2
DECAY = 0.2  # wsd's last part, a share of the trial; 0.1 to 0.2 do in both papers

SHRINK = 0.1  # Plateau's values are those of torch's ReduceLROnPlateau
PATIENCE = 10  # reports
THRESHOLD = 1e-4  # of the best loss


def factor(name: ScheduleName, progress: float, warmup: float) -> float:
    """The factor on each learning rate at a share of the whole trial; 0 only at its end.

    Args:
        progress: in [0, 1].
        warmup: in [0, 1), the share in which the factor rises, in a line, from START to 1;
            one_cycle rises in half a cosine, and for RISE where this is 0.
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


def scale_lr(rule: ScalingRule, batch: int, lr_batch: int) -> float:
    """The factor on a learning rate that was meant for updates of lr_batch samples.

    Sources: linear, Goyal et al. (2017), section 2.1, for SGD; sqrt, Krizhevsky, One Weird Trick
    for Parallelizing CNNs (2014), section 5, and for Adam, Malladi et al., On the SDEs and Scaling
    Rules for Adaptive Gradient Algorithms (2022).
    """
    match rule:
        case "none":
            return 1.0
        case "linear":
            return batch / lr_batch
        case "sqrt":
            return math.sqrt(batch / lr_batch)


class Plateau:
    """A factor that falls tenfold once more than PATIENCE reports in a row bring no better loss.

    It does what torch's ReduceLROnPlateau does by default, but without an optimizer, and with a
    threshold that works for losses below 0 too (a score's sign turned): there, torch takes every
    repetition of the best for a better one.
    """

    def __init__(self) -> None:
        self.factor = 1.0
        self.best = math.inf
        self.waited = 0  # reports since the best one, or since the last fall

    def observe(self, loss: float) -> None:
        """Take the loss of one more report; one that is not a number is no better one."""
        if loss < self._bar():
            self.best, self.waited = loss, 0
            return
        self.waited += 1
        if self.waited > PATIENCE:
            self.factor, self.waited = self.factor * SHRINK, 0

    def state_dict(self) -> dict[str, float]:
        """What it takes to go on."""
        return {"factor": self.factor, "best": self.best, "waited": self.waited}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Go on from where another one was."""
        self.factor, self.best = state["factor"], state["best"]
        self.waited = int(state["waited"])

    def _bar(self) -> float:
        # The share of an infinite best is not a number.
        return self.best if math.isinf(self.best) else self.best - THRESHOLD * abs(self.best)


def _cosine(done: float) -> float:
    """Half a cosine from 1 to 0."""
    return 0.5 * (1 + math.cos(math.pi * done))
