"""CatBoost, in trials: see hposvc docs frameworks."""

from hposvc.integrations.catboost import fit

__all__ = ["fit"]
