"""CatBoost, in trials: see hposvc docs boosting."""

from hposvc.integrations.catboost import fit

__all__ = ["fit"]
