"""Hugging Face's Trainer, in trials and searched: see hposvc docs hugging-face."""

from hposvc.integrations.hf import Report, checkpoint, search

__all__ = ["Report", "checkpoint", "search"]
