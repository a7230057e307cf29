"""Vizier's clients over a home's studies."""

from hposvc.integrations.vizier.study import Study, Trial

__all__ = ["Study", "Trial"]
