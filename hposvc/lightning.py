"""Lightning's Trainer, in trials: see docs/lightning.md."""

from hposvc.integrations.lightning import Report, checkpoint, ranks

__all__ = ["Report", "checkpoint", "ranks"]
