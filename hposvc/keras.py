"""Keras, in trials: see hposvc docs frameworks."""

from hposvc.integrations.keras import FILE, Report

__all__ = ["FILE", "Report"]
