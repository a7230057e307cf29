"""Lightning's Trainer, in trials: see hposvc docs frameworks."""

from hposvc.integrations.lightning import Report, checkpoint, ranks

__all__ = ["Report", "checkpoint", "ranks"]
