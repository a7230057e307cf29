"""Hugging Face's Trainer, in trials and searched: see hposvc docs frameworks."""

from hposvc.integrations.hf import Report, checkpoint, search

__all__ = ["Report", "checkpoint", "search"]
