"""XGBoost's trainings, as trials: see docs/boosting.md."""

from hposvc.integrations.xgboost import Report, checkpoint, rounds_left

__all__ = ["Report", "checkpoint", "rounds_left"]
