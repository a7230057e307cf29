"""Hugging Face's Trainer, in trials and searched: see docs/hugging-face.md."""

from hposvc.integrations.hf import Report, checkpoint, search

__all__ = ["Report", "checkpoint", "search"]
