"""Adapters as files of Hugging Face's peft: adapter_config.json and adapter_model.safetensors.

Names and meanings are those of peft 0.21, which need not be installed.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from trainables.lora.adapting import LoraOptions, adapt, adapters
from trainables.lora.layers import Adapted, LoraEmbedding, LoraLinear

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
PARTS = {  # endings of tensors' names in peft: their names here
    ".lora_A.weight": "lora_A",
    ".lora_B.weight": "lora_B",
    ".lora_embedding_A": "lora_A",
    ".lora_embedding_B": "lora_B",
}
BEGUN = (True, False, "gaussian")  # initializations that leave the base unchanged
# Keys that are supported, or that only describe how the adapter was made. Any other key that is set
# changes what the adapter computes.
KNOWN = {
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "exclude_modules",
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "lora_alpha",
    "lora_dropout",
    "megatron_core",
    "modules_to_save",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "r",
    "revision",
    "target_modules",
    "task_type",
    "use_rslora",
}


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


def load_peft(model: nn.Module, folder: Path) -> nn.Module:
    """Adapt a base in place as a folder says, with the folder's values; return the model.

    Raises:
        ValueError: the adapter needs something unsupported here, or is for another model.
    """
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    _check_config(config, folder)
    theirs = {
        name.removeprefix(PREFIX): value for name, value in load_file(folder / WEIGHTS).items()
    }
    ours = {_from_peft_name(name): value for name, value in theirs.items()}
    targets = sorted({name.rpartition(".")[0] for name in ours if _is_adapter(name)})
    unadapted = sorted({name.rpartition(".")[0] for name in ours if not _is_adapter(name)})
    options = LoraOptions(
        rank=config["r"],
        alpha=config["lora_alpha"],
        dropout=config["lora_dropout"],
        targets=tuple(targets),
        whole=tuple(unadapted),
        stabilized=bool(config.get("use_rslora")),
    )
    _load_values(adapt(model, options), ours, folder)
    return model


@torch.no_grad()
def _load_values(model: nn.Module, values: Mapping[str, Tensor], folder: Path) -> None:
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    for name in sorted(trained.keys() | values.keys()):
        here, there = (_shape(held.get(name)) for held in (trained, values))
        if here != there:
            raise ValueError(f"{folder} is of another model: {name} is {there} in it, {here} here")
        trained[name].copy_(values[name])


def _shape(value: Tensor | None) -> tuple[int, ...] | str:
    return "absent" if value is None else tuple(value.shape)


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


def _check_config(config: Mapping[str, Any], folder: Path) -> None:
    if config.get("peft_type") != "LORA":
        raise ValueError(f"{folder / CONFIG}: peft_type is {config.get('peft_type')}, not LORA")
    unknown = sorted(name for name, value in config.items() if value and name not in KNOWN)
    unknown += [] if config.get("bias", "none") == "none" else ["bias"]
    unknown += [] if config.get("init_lora_weights", True) in BEGUN else ["init_lora_weights"]
    if unknown:
        shown = ", ".join(f"{name}: {config[name]}" for name in unknown)
        raise ValueError(
            f"{folder / CONFIG} asks for {shown}; adapters here are plain ones of one rank and "
            "alpha, so merge it by peft instead"
        )


def _to_peft_name(name: str, layers: Mapping[str, Adapted]) -> str:
    owner, _, part = name.rpartition(".")
    if owner not in layers:
        return name
    if isinstance(layers[owner], LoraEmbedding):
        return f"{owner}.{part.replace('lora_', 'lora_embedding_')}"
    return f"{name}.weight"


def _from_peft_name(name: str) -> str:
    for ending, part in PARTS.items():
        if name.endswith(ending):
            return f"{name.removesuffix(ending)}.{part}"
    return name


def _is_adapter(name: str) -> bool:
    return name.endswith((".lora_A", ".lora_B"))
