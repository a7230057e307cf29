"""LightGBM's trainings, as trials: see hposvc docs frameworks."""

from hposvc.integrations.lightgbm import Report, checkpoint

__all__ = ["Report", "checkpoint"]
