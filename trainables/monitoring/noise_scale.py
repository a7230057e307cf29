"""The gradient noise scale: the batch size beyond which more samples hardly help.

G is the true gradient, Sigma the covariance of a sample's gradient; B_simple = tr(Sigma) / |G|^2.
Source: McCandlish, Kaplan & Amodei, An Empirical Model of Large-Batch Training (2018), equation
2.9, and appendix A.1 for the estimates from two batch sizes.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from trainables.optim.clipping import total_norm


def noise_scale(
    model: nn.Module, loss: Callable[[Tensor], Tensor], batches: Sequence[Tensor]
) -> float | None:
    """Return B_simple at a model's weights, in samples; leave no gradients.

    Args:
        loss: the mean loss of the samples at these positions.
        batches: 10 or more give the scale within a factor of two; a few hundred within a tenth.

    Returns:
        None if there is too much noise to tell.

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
    small_squared = 0.0  # the mean squared norm of a batch's gradient
    for batch in batches:
        gradients = torch.autograd.grad(loss(batch), weights, materialize_grads=True)
        small_squared += float(total_norm(gradients)) ** 2 / len(batches)
        torch._foreach_add_(sums, gradients)
    large_squared = float(total_norm(sums)) ** 2 / len(batches) ** 2  # of all batches together
    small = sizes.pop()
    large = small * len(batches)
    # Neither estimate has a bias, so both may be negative: equations A.2 and A.3.
    squared = (large * large_squared - small * small_squared) / (large - small)
    trace = (small_squared - large_squared) / (1 / small - 1 / large)
    return trace / squared if squared > 0 and trace >= 0 else None
