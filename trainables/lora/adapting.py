"""Adapters for chosen layers of a model whose other weights are frozen.

Sources: Hu et al., LoRA (2021); the scaling alpha / sqrt(rank), Kalajdzievski, rsLoRA (2023).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from torch import Tensor, nn

from trainables.lora.layers import Adapted, LoraEmbedding, LoraLinear
from trainables.pretrained import mark_frozen_base

# These modules read their layers' weights without calling the layers, some in evaluation only.
READERS = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
SHOWN = 3  # names in a message


@dataclass(frozen=True)
class LoraOptions:
    """Options of adapters. Patterns are of full module names, with * and ?."""

    rank: int = 8
    alpha: float = 16.0  # an adapter's output is scaled by alpha / rank
    dropout: float = 0.0  # of an adapter's inputs
    targets: tuple[str, ...] = ("*.query", "*.value")  # nn.Linear and nn.Embedding
    whole: tuple[str, ...] = ()  # modules trained without adapters, such as a new head
    stabilized: bool = False  # scale by alpha / sqrt(rank): one learning rate suits all ranks

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank is {self.rank}; give 1 or more")
        if not 0 < self.alpha < math.inf:
            raise ValueError(f"alpha is {self.alpha}; give a number above 0")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; give 0 or more, below 1")
        if not self.targets:
            raise ValueError("targets is empty; name the layers to adapt, such as '*.query'")

    @property
    def scaling(self) -> float:
        """Return the factor on an adapter's output."""
        return self.alpha / (math.sqrt(self.rank) if self.stabilized else self.rank)


def adapt(model: nn.Module, options: LoraOptions) -> nn.Module:
    """Add adapters to a model in place, and train only these and the modules in `whole`.

    Call this in `build_model`, once the base has its weights: checkpoints omit the base's weights,
    and refuse to continue with other ones.

    Raises:
        ValueError: a pattern fits no suitable module, or the model is adapted already.
    """
    if any(isinstance(module, Adapted) for module in model.modules()):
        raise ValueError(f"{type(model).__name__} has adapters already; adapt it once")
    chosen = _choose_layers(model, options.targets)
    names = [name for name, _ in model.named_modules() if name]
    learning = _match_names(options.whole, names, "whole", [])
    model.requires_grad_(False)
    made: dict[int, Adapted] = {}
    for name, base in chosen.items():
        parent, _, own = name.rpartition(".")
        made[id(base)] = made.get(id(base)) or _make_adapted(base, options)
        setattr(model.get_submodule(parent), own, made[id(base)])
    for name in learning:
        model.get_submodule(name).requires_grad_(True)
    mark_frozen_base(model)
    return model


def adapters(model: nn.Module) -> dict[str, Adapted]:
    """Return the adapted layers by name."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, Adapted)}


def merge(model: nn.Module) -> None:
    """Add every adapter to its layer's weight: as fast as the base, outputs equal up to rounding.

    For models that are complete on this rank, after training.
    """
    for layer in adapters(model).values():
        layer.merge()


def unmerge(model: nn.Module) -> None:
    """Take every adapter out of its layer's weight, restoring the base's weights exactly."""
    for layer in adapters(model).values():
        layer.unmerge()


def merged_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return a state_dict for the base model, adapters added in; a copy."""
    layers = adapters(model)
    merged_before = {name for name, layer in layers.items() if layer.replaced}
    merge(model)
    adapted_ids = {id(layer) for layer in layers.values()}
    modules = model.named_modules(remove_duplicate=False)
    names = [name for name, module in modules if id(module) in adapted_ids]
    adapter_names = {f"{name}.{part}" for name in names for part in ("lora_A", "lora_B")}
    weights = {
        name: weight.clone()
        for name, weight in model.state_dict().items()
        if name not in adapter_names
    }
    for name, layer in layers.items():
        if name not in merged_before:
            layer.unmerge()
    return weights


def _make_adapted(base: nn.Module, options: LoraOptions) -> Adapted:
    if isinstance(base, nn.Embedding):
        return LoraEmbedding(base, options.rank, options.scaling)
    assert isinstance(base, nn.Linear)
    return LoraLinear(base, options.rank, options.scaling, options.dropout)


def _choose_layers(model: nn.Module, patterns: Sequence[str]) -> dict[str, nn.Module]:
    """Return the layers to adapt, by name; a layer with several names is under each of them."""
    layers = dict(_adaptable_layers(model))
    others = [
        f"{name} ({type(module).__name__})"
        for name, module in model.named_modules()
        if name and name not in layers and any(fnmatchcase(name, pattern) for pattern in patterns)
    ]
    return {name: layers[name] for name in _match_names(patterns, list(layers), "targets", others)}


def _adaptable_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    read = {
        id(layer)
        for module in model.modules()
        if isinstance(module, READERS)
        for layer in module.modules()
    }
    for name, module in model.named_modules(remove_duplicate=False):
        plain = type(module) is nn.Linear or (
            type(module) is nn.Embedding and module.max_norm is None
        )
        if name and plain and id(module) not in read:
            yield name, module


def _match_names(
    patterns: Sequence[str], names: Sequence[str], option: str, others: Sequence[str]
) -> list[str]:
    """Return the names that fit some pattern.

    Raises:
        ValueError: a pattern fits no name.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            unfit = [other for other in others if fnmatchcase(other.rpartition(" (")[0], pattern)]
            near = get_close_matches(pattern, names, n=SHOWN, cutoff=0.0)
            matches = (
                f"only {', '.join(unfit[:SHOWN])}, which cannot be adapted" if unfit else "none"
            )
            raise ValueError(
                f"lora {option}: {pattern!r} fits {matches}; there are {', '.join(near) or 'none'}"
            )
    return [name for name in names if any(fnmatchcase(name, wanted) for wanted in patterns)]
