"""Fine-tuning by low-rank adapters (LoRA): adapt a model, merge it, share the adapters."""

from trainables.lora.adapting import LoraOptions, adapt, adapters, merge, merged_weights, unmerge

__all__ = ["LoraOptions", "adapt", "adapters", "merge", "merged_weights", "unmerge"]
