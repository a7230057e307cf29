"""The door to Hugging Face's transformers, which is an extra of its own."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

try:
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error}: this trainable needs it; pip install 'hposvc[transformers]'"
    ) from error

__all__ = ["AutoModel", "AutoModelForCausalLM", "AutoTokenizer", "load"]


def load(kind: Any, name: Path | str, **options: str) -> nn.Module:
    """A pretrained model; on torch's meta device its shapes alone, and no weight is read.

    Args:
        kind: AutoModel, or one of its kin.
    """
    if torch.empty(0).is_meta:
        config = AutoConfig.from_pretrained(name)
        shapes: nn.Module = kind.from_config(config, dtype=config.dtype)
        return shapes
    model: nn.Module = kind.from_pretrained(name, **options)
    return model
