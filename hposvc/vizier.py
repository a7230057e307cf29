"""Vizier's clients, on studies that a home keeps: see docs/vizier.md."""

from hposvc.integrations.vizier import Study, Trial

__all__ = ["Study", "Trial"]
