"""Save adapters as files that Hugging Face's peft loads.

Names and meanings are those of peft 0.21, which need not be installed.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import nn

from trainables.lora.adapting import adapters
from trainables.lora.layers import Adapted, LoraEmbedding, LoraLinear

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."


def save_peft(model: nn.Module, folder: Path, base: str = "") -> Path:
    """Write the trained weights of an adapted model into a folder, and return the folder.

    Args:
        model: complete on this rank; see load_weights for a checkpoint's model.
        base: the name of the base on the hub, or its folder, for loading the files with peft.

    Raises:
        ValueError: the model has no adapters, or merged ones.
    """
    layers = adapters(model)
    if not layers or any(layer.replaced for layer in layers.values()):
        raise ValueError(f"{type(model).__name__} has {'merged' if layers else 'no'} adapters")
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    renamed = {f"{PREFIX}{_to_peft_name(name, layers)}": value for name, value in trained.items()}
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().cpu().contiguous() for name, value in renamed.items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    owners = {name.rpartition(".")[0] for name in trained} - set(layers)
    config = _config(layers, sorted(owners), base)
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return folder


def _config(layers: Mapping[str, Adapted], whole: Iterable[str], base: str) -> dict[str, object]:
    layer = next(iter(layers.values()))
    rank = len(layer.lora_A)
    linears = (layer for layer in layers.values() if isinstance(layer, LoraLinear))
    return {
        "peft_type": "LORA",
        "base_model_name_or_path": base or None,
        "bias": "none",
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": round(layer.scaling * rank, 9),
        # Embeddings have none.
        "lora_dropout": next((linear.dropout.p for linear in linears), 0.0),
        "modules_to_save": list(whole) or None,
        "r": rank,
        "target_modules": list(layers),
        "task_type": None,
        "use_rslora": False,
    }


def _to_peft_name(name: str, layers: Mapping[str, Adapted]) -> str:
    owner, _, part = name.rpartition(".")
    if owner not in layers:
        return name
    if isinstance(layers[owner], LoraEmbedding):
        return f"{owner}.{part.replace('lora_', 'lora_embedding_')}"
    return f"{name}.weight"
