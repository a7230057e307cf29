"""Metrics of classification, per sample.

Axes: B samples, C classes.
"""

from torch import Tensor
from torch.nn.functional import cross_entropy


def class_metrics(scores_BC: Tensor, labels_B: Tensor) -> dict[str, Tensor]:
    """Return the values of `Task.evaluate` for classes: accuracy_B (0 or 1) and loss_B (nats)."""
    return {
        "accuracy": scores_BC.argmax(dim=1) == labels_B,
        "loss": cross_entropy(scores_BC, labels_B, reduction="none"),
    }
