"""Fine-tuning by low-rank adapters (LoRA): adapt a model, merge it, share the adapters."""

from trainables.lora.adapting import LoraOptions, adapt, adapters, merge, merged_weights, unmerge
from trainables.lora.base import load_base

__all__ = [
    "LoraOptions",
    "adapt",
    "adapters",
    "load_base",
    "merge",
    "merged_weights",
    "unmerge",
]
