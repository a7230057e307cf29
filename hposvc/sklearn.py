"""scikit-learn's searches, as sweeps: see hposvc docs scikit-learn."""

from hposvc.integrations.sklearn import SweepSearchCV

__all__ = ["SweepSearchCV"]
