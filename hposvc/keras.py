"""Keras, in trials: see docs/keras.md."""

from hposvc.integrations.keras import FILE, Report

__all__ = ["FILE", "Report"]
