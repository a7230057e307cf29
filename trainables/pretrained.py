"""Pretrained weights that a task loads, and that training may leave frozen.

Checkpoints hold no frozen base, only a fingerprint of it. So a model of billions of weights that
trains a few millions saves only those, and is resumed on no other base model.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import Parameter

ATTRIBUTE = "brought"  # the attribute that marks a module
LOOKS = 64  # values of each tensor in the fingerprint; any other training changes them all
INDEX = "model.safetensors.index.json"  # names the files of a model, as transformers writes it
SHOWN = 3  # names in a message


def load_pretrained(
    build: Callable[[], nn.Module],
    files: Path,
    rename: Callable[[str], str] = str,
    new: Sequence[str] = (),
) -> nn.Module:
    """Return the model that `build` makes, with its weights mapped from safetensors files.

    Mapped weights take no memory of the process: the system reads pages of the files as they are
    used, and all ranks of a node share these. So a rank of `fsdp` reads and copies its own shards,
    and a GPU's weights go there without a copy. Weights have the format of the files.

    Args:
        build: makes the model without loading weights. Its parameters go to the meta device as
            modules register them, which takes neither memory nor random numbers.
        files: a file, or the folder of a model; nothing may write to them during training.
        rename: returns a weight's name in the files, from its name in the model.
        new: patterns of the weights' names that the files lack, such as `head.*`; their modules
            initialize them (`reset_parameters`).

    Raises:
        FileNotFoundError: there are no such files.
        ValueError: the files lack a weight, or hold one of another shape.
        ModuleNotFoundError: safetensors is not installed.
    """
    tensors = _mapped_tensors(files)
    with _parameters_on_meta():
        model = build()
    names: dict[Parameter, list[str]] = {}  # a shared weight has several
    for name, weight in model.named_parameters(remove_duplicate=False):
        names.setdefault(weight, []).append(name)
    lacking, used = [], set[str]()
    for weight, aliases in names.items():
        found = [rename(alias) for alias in aliases if rename(alias) in tensors]
        used.update(found)
        if not found:
            lacking.append(aliases[0])
            value = torch.empty_like(weight, device=torch.get_default_device())
        elif (value := tensors[found[0]]).shape != weight.shape:
            raise ValueError(
                f"{files}: {found[0]} is {tuple(value.shape)} there, but {aliases[0]} of the model "
                f"is {tuple(weight.shape)}; build the model by the configuration of the files"
            )
        loaded = Parameter(value, weight.requires_grad)
        for alias in aliases:
            owner, _, own_name = alias.rpartition(".")
            model.get_submodule(owner)._parameters[own_name] = loaded
    used.update(rename(name) for name, _ in model.named_buffers())
    _initialize(model, lacking, new, files, [name for name in tensors if name not in used])
    for name, buffer in model.named_buffers():
        if rename(name) in tensors:
            buffer.copy_(tensors[rename(name)])
    return model


def _mapped_tensors(files: Path) -> dict[str, Tensor]:
    """Return all tensors of the files by name; their values are read when they are used."""
    try:
        from safetensors import safe_open
    except ModuleNotFoundError as error:
        message = "safetensors is not installed; pip install 'hposvc[export]'"
        raise ModuleNotFoundError(message) from error
    if (index := files / INDEX).exists():
        weight_map: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        paths = [files / name for name in sorted({*weight_map.values()})]
    else:
        paths = sorted(files.glob("*.safetensors")) if files.is_dir() else [files]
    if not paths:
        raise FileNotFoundError(f"{files} has no *.safetensors; give the folder of the weights")
    tensors: dict[str, Tensor] = {}
    for path in paths:
        with torch.device("cpu"), safe_open(path, "pt") as opened:
            mapped = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        # A forecast builds models on the meta device.
        tensors |= {name: value.to(torch.get_default_device()) for name, value in mapped.items()}
    return tensors


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Put every parameter on the meta device when a module registers it; buffers stay real."""
    register = nn.Module.register_parameter

    def on_meta(self: nn.Module, name: str, param: Parameter | None) -> None:
        if param is not None and not param.is_meta:
            param = Parameter(param.to("meta"), param.requires_grad)
        register(self, name, param)

    nn.Module.register_parameter = on_meta  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def _initialize(
    model: nn.Module, lacking: Sequence[str], new: Sequence[str], files: Path, unused: list[str]
) -> None:
    """Let modules initialize their weights that the files lack.

    Args:
        unused: names in the files of which the model has no weight, for the message.

    Raises:
        ValueError: `new` does not have such a weight, or its module cannot initialize it alone.
    """
    expected = {name for name in lacking if any(fnmatchcase(name, pattern) for pattern in new)}
    refused = [name for name in lacking if name not in expected]
    for owner in dict.fromkeys(name.rpartition(".")[0] for name in lacking if name in expected):
        module = model.get_submodule(owner)
        own = {f"{owner}.{name}" for name, _ in module.named_parameters(recurse=False)}
        if own <= expected and hasattr(module, "reset_parameters"):
            module.reset_parameters()  # type: ignore[operator]  # as torch's layers have it
        else:
            refused += sorted(own & expected)
    if refused:
        more = f" and {len(refused) - SHOWN} more" if len(refused) > SHOWN else ""
        spare = f" (the model lacks its {', '.join(unused[:SHOWN])})" if unused else ""
        raise ValueError(
            f"{files} lacks {', '.join(refused[:SHOWN])}{more}{spare}; if weights have other names "
            "there, give `rename`; if their modules can initialize them all (reset_parameters), "
            "name them in `new`; or add these modules to the model that load_pretrained returns"
        )


@dataclass(frozen=True)
class FrozenBase:
    """The names of a module's own frozen base weights, and the fingerprint of the whole base."""

    names: frozenset[str]
    fingerprint: str


def mark_frozen_base(model: nn.Module) -> None:
    """Mark the weights that are frozen now as the base: call it after loading, before training.

    A weight unfrozen later counts as trained again.
    """
    mark = fingerprint(model)
    for module in model.modules():
        weights = module.named_parameters(recurse=False, remove_duplicate=False)
        if names := frozenset(name for name, weight in weights if not weight.requires_grad):
            setattr(module, ATTRIBUTE, FrozenBase(names, mark))


def frozen_base_names(model: nn.Module) -> set[str]:
    """Return the names of the base weights that are still frozen."""
    return {
        f"{prefix}.{name}" if prefix else name
        for prefix, module, mark in _sealed_modules(model)
        for name, weight in module.named_parameters(recurse=False, remove_duplicate=False)
        if name in mark.names and not weight.requires_grad
    }


def fingerprints(model: nn.Module) -> list[str]:
    """Return the fingerprints of all base models in this model; usually one or none."""
    return sorted({mark.fingerprint for _, _, mark in _sealed_modules(model)})


def fingerprint(model: nn.Module) -> str:
    """Return a fingerprint of the frozen weights: of their names, shapes, and some values."""
    digest = blake2b(digest_size=8)
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            digest.update(f"{name} {tuple(weight.shape)}".encode())
            digest.update(sample_values(weight).numpy().tobytes())
    return digest.hexdigest()


def _sealed_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module, FrozenBase]]:
    for prefix, module in model.named_modules(remove_duplicate=False):
        if isinstance(mark := getattr(module, ATTRIBUTE, None), FrozenBase):
            yield prefix, module, mark


def sample_values(weight: Tensor) -> Tensor:
    """Return some values of a weight, as float64 on the CPU."""
    if weight.is_meta:  # a memory forecast has shapes only, and saves nothing
        return torch.empty(0, device="cpu")
    flat = weight.detach().flatten()
    return flat[:: max(1, len(flat) // LOOKS)].to("cpu", torch.float64)
