"""The gradient noise scale: the batch size beyond which more samples hardly help.

G is the true gradient, Sigma the covariance of a sample's gradient; B_simple = tr(Sigma) / |G|^2.
Source: McCandlish, Kaplan & Amodei, An Empirical Model of Large-Batch Training (2018), equation
2.9, and appendix A.1 for the estimates from two batch sizes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainables.optim.clipping import total_norm


@dataclass(frozen=True)
class Noise:
    """Estimates from squared norms of the gradients of a small and a large batch's mean loss.

    For example of a rank's (or micro-batch's) own gradient, and of the average over ranks, at equal
    weights. `small_squared` may be the mean of several ranks' squared norms, which is less noisy.
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
        """Return |G|^2, without bias (equation A.2); may be negative."""
        weighted = self.large * self.large_squared - self.small * self.small_squared
        return weighted / (self.large - self.small)

    @property
    def trace(self) -> float:
        """Return tr(Sigma), without bias (equation A.3); may be negative."""
        return (self.small_squared - self.large_squared) / (1 / self.small - 1 / self.large)

    @property
    def scale(self) -> float | None:
        """Return B_simple, in samples; None if the estimates are too noisy to tell."""
        return self.trace / self.squared if self.squared > 0 and self.trace >= 0 else None


def measure(model: nn.Module, loss: Callable[[Tensor], Tensor], batches: Sequence[Tensor]) -> Noise:
    """Measure the noise at a model's weights, from batches of one size; leaves no gradients.

    Args:
        loss: the mean loss of the samples at these positions.
        batches: 10 or more give the noise within a factor of two; a few hundred within a tenth.

    Raises:
        ValueError: fewer than two batches, or of different sizes.
    """
    sizes = {len(batch) for batch in batches}
    if len(batches) < 2 or len(sizes) > 1:
        raise ValueError(
            f"noise: {len(batches)} batches of {sorted(sizes)} samples; "
            "give two or more of one size"
        )
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    sums = [torch.zeros_like(weight) for weight in weights]
    small = 0.0
    for batch in batches:
        gradients = torch.autograd.grad(loss(batch), weights, allow_unused=True)
        filled = [
            torch.zeros_like(w) if g is None else g for w, g in zip(weights, gradients, strict=True)
        ]
        small += float(total_norm(filled)) ** 2 / len(batches)
        torch._foreach_add_(sums, filled)
    large = float(total_norm(sums)) ** 2 / len(batches) ** 2
    size = sizes.pop()
    return Noise(size, size * len(batches), small, large)
