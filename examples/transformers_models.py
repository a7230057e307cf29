"""The import of Hugging Face's transformers, an optional dependency, and loading of its models."""

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
    """Load a pretrained model; on torch's meta device build its shapes alone, reading no weights.

    Args:
        kind: AutoModel, or a class like it.
    """
    if torch.empty(0).is_meta:
        config = AutoConfig.from_pretrained(name)
        shapes: nn.Module = kind.from_config(config, dtype=config.dtype)
        return shapes
    model: nn.Module = kind.from_pretrained(name, **options)
    return model
