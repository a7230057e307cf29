"""scikit-learn's searches, as sweeps: see docs/scikit-learn.md."""

from hposvc.integrations.sklearn import SweepSearchCV

__all__ = ["SweepSearchCV"]
