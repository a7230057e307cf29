"""LightGBM's trainings, as trials: see docs/boosting.md."""

from hposvc.integrations.lightgbm import Report, checkpoint

__all__ = ["Report", "checkpoint"]
