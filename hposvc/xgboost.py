"""XGBoost's trainings, as trials: see hposvc docs frameworks."""

from hposvc.integrations.xgboost import Report, checkpoint, rounds_left

__all__ = ["Report", "checkpoint", "rounds_left"]
