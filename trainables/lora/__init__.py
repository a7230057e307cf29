"""Fine-tuning by additions of low rank: adapt a model, merge it, share what it learned."""

from trainables.lora.adapting import (
    LoraOptions,
    adapt,
    adapters,
    merge,
    merged_weights,
    unmerge,
)

__all__ = ["LoraOptions", "adapt", "adapters", "merge", "merged_weights", "unmerge"]
