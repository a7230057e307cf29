"""Keras, in trials: see hposvc docs keras."""

from hposvc.integrations.keras import FILE, Report

__all__ = ["FILE", "Report"]
