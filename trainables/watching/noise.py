"""The gradient-noise scale: the batch beyond which more samples stop to help.

G is the true gradient, Sigma the covariance of one sample's; B_simple = tr(Sigma) / |G|^2.
Source: McCandlish, Kaplan & Amodei, An Empirical Model of Large-Batch Training (2018), equation
2.9, and appendix A.1 for the estimates from two batch sizes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainables.optim.clipping import total_norm


@dataclass(frozen=True)
class Norms:
    """Squared norms of gradients of mean losses, at the same weights.

    Such as a rank's (or micro-batch's) own gradient, and the average over ranks. `small_squared`
    may be the mean of several ranks' squared norms, which is less noisy.
    """

    small: int  # samples in the small batch
    large: int
    small_squared: float
    large_squared: float

    def __post_init__(self) -> None:
        if not 1 <= self.small < self.large:
            raise ValueError(
                f"noise: batches of {self.small} and {self.large} samples; the small one must "
                "have at least 1, and fewer than the large one"
            )

    @property
    def squared(self) -> float:
        """|G|^2, without bias (equation A.2); may come out negative."""
        weighted = self.large * self.large_squared - self.small * self.small_squared
        return weighted / (self.large - self.small)

    @property
    def trace(self) -> float:
        """tr(Sigma), without bias (equation A.3); may come out negative."""
        return (self.small_squared - self.large_squared) / (1 / self.small - 1 / self.large)


@dataclass(frozen=True)
class Noise:
    """Running averages of both estimates; the ratio of single estimates would be biased."""

    decay: float = 0.95  # of an old estimate, per new one
    squared: float = 0.0
    trace: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"noise: decay is {self.decay}; choose 0 or more, and below 1")

    def after(self, norms: Norms) -> "Noise":
        """With one more estimate."""
        new = 1 - self.decay
        return Noise(
            self.decay,
            self.decay * self.squared + new * norms.squared,
            self.decay * self.trace + new * norms.trace,
        )

    @property
    def scale(self) -> float | None:
        """B_simple, in samples; None: the estimates so far are too noisy to tell."""
        # Both averages started at 0, so they lack the same factor, and their ratio none.
        return self.trace / self.squared if self.squared > 0 and self.trace >= 0 else None


def measure(model: nn.Module, loss: Callable[[Tensor], Tensor], batches: Sequence[Tensor]) -> Noise:
    """The noise at a model's weights, from batches of one size; it leaves no gradients behind.

    Args:
        loss: the mean loss of the samples at these positions.
        batches: 10 or more are enough for a factor of two; a few hundred for a tenth.

    Raises:
        ValueError: fewer than two batches, or of different sizes.
    """
    sizes = {len(batch) for batch in batches}
    if len(batches) < 2 or len(sizes) > 1:
        raise ValueError(
            f"noise: {len(batches)} batches of {sorted(sizes)} samples; "
            "give two or more of one size"
        )
    weights = [each for each in model.parameters() if each.requires_grad]
    sums = [torch.zeros_like(each) for each in weights]
    small = 0.0
    for batch in batches:
        found = torch.autograd.grad(loss(batch), weights, allow_unused=True)
        own = [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found, strict=True)]
        small += float(total_norm(own)) ** 2 / len(batches)
        torch._foreach_add_(sums, own)
    large = float(total_norm(sums)) ** 2 / len(batches) ** 2
    size = sizes.pop()
    return Noise(decay=0.0).after(Norms(size, size * len(batches), small, large))
