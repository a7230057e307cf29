"""How well scores tell classes apart, sample by sample.

Axes: B samples, C classes.
"""

from torch import Tensor
from torch.nn.functional import cross_entropy


def judged(scores_BC: Tensor, labels_B: Tensor) -> dict[str, Tensor]:
    """What `Task.evaluate` gives of classes: accuracy_B (a share) and loss_B (nats)."""
    return {
        "accuracy": scores_BC.argmax(dim=1) == labels_B,
        "loss": cross_entropy(scores_BC, labels_B, reduction="none"),
    }
