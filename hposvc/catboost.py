"""CatBoost, in trials: see docs/boosting.md."""

from hposvc.integrations.catboost import fit

__all__ = ["fit"]
