"""Give chosen layers of a model adapters, and freeze all else.

Sources: Hu et al., LoRA (2021); the scaling alpha / sqrt(rank), Kalajdzievski, rsLoRA (2023).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from torch import Tensor, nn

from trainables.frozen import seal
from trainables.lora.layers import Adapted, LoraEmbedding, LoraLinear

# They read the weights of the layers in them without calling those, some when evaluating only.
READERS = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
SHOWN = 3  # names in a message


@dataclass(frozen=True)
class LoraOptions:
    """How a model is adapted. Patterns are of full module names, with * and ?."""

    rank: int = 8
    alpha: float = 16.0  # what an adapter adds is scaled by alpha / rank
    dropout: float = 0.0  # of what goes into an adapter
    targets: tuple[str, ...] = ("*.query", "*.value")  # nn.Linear and nn.Embedding
    whole: tuple[str, ...] = ()  # modules that are trained as they are: a new head
    stabilized: bool = False  # scaled by alpha / sqrt(rank): ranks compare at one learning rate

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
        """The factor on what an adapter adds."""
        return self.alpha / (math.sqrt(self.rank) if self.stabilized else self.rank)


def adapt(model: nn.Module, options: LoraOptions) -> nn.Module:
    """The same model, of which adapters and the modules in `whole` are trained, and no more.

    Call it in `build_model`, once the base has its weights: checkpoints leave those out, and refuse
    to go on upon others.

    Raises:
        ValueError: a pattern fits nothing that it could mean, or the model is adapted already.
    """
    if any(isinstance(each, Adapted) for each in model.modules()):
        raise ValueError(f"{type(model).__name__} has adapters already; adapt it once")
    chosen = _chosen(model, options.targets)
    names = [name for name, _ in model.named_modules() if name]
    learning = _fitting(options.whole, names, "whole", [])
    model.requires_grad_(False)
    made: dict[int, Adapted] = {}
    for name, base in chosen.items():
        parent, _, own = name.rpartition(".")
        made[id(base)] = made.get(id(base)) or _adapted(base, options)
        setattr(model.get_submodule(parent), own, made[id(base)])
    for name in learning:
        model.get_submodule(name).requires_grad_(True)
    seal(model)
    return model


def adapters(model: nn.Module) -> dict[str, Adapted]:
    """Name to layer of those that are adapted."""
    return {name: each for name, each in model.named_modules() if isinstance(each, Adapted)}


def merge(model: nn.Module) -> None:
    """Add every adapter to its layer's weight: the base's speed, and outputs equal up to rounding.

    For models that are whole on this rank, after training.
    """
    for layer in adapters(model).values():
        layer.merge()


def unmerge(model: nn.Module) -> None:
    """Take every adapter out again; the base's weights are as they were, bit by bit."""
    for layer in adapters(model).values():
        layer.unmerge()


def merged_weights(model: nn.Module) -> dict[str, Tensor]:
    """A state_dict for the model without adapters, what they add included; a copy."""
    layers = adapters(model)
    was = {name for name, layer in layers.items() if layer.replaced}
    merge(model)
    known = {id(layer) for layer in layers.values()}
    names = [each for each, at in model.named_modules(remove_duplicate=False) if id(at) in known]
    own = {f"{name}.{part}" for name in names for part in ("lora_A", "lora_B")}
    held = {name: each.clone() for name, each in model.state_dict().items() if name not in own}
    for name, layer in layers.items():
        if name not in was:
            layer.unmerge()
    return held


def _adapted(base: nn.Module, options: LoraOptions) -> Adapted:
    if isinstance(base, nn.Embedding):
        return LoraEmbedding(base, options.rank, options.scaling)
    assert isinstance(base, nn.Linear)
    return LoraLinear(base, options.rank, options.scaling, options.dropout)


def _chosen(model: nn.Module, patterns: Sequence[str]) -> dict[str, nn.Module]:
    """The layers to adapt, by name; one that has several names under each."""
    found = dict(_adaptable(model))
    others = [
        f"{name} ({type(each).__name__})"
        for name, each in model.named_modules()
        if name and name not in found and any(fnmatchcase(name, one) for one in patterns)
    ]
    return {name: found[name] for name in _fitting(patterns, list(found), "targets", others)}


def _adaptable(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    read = {
        id(layer)
        for each in model.modules()
        if isinstance(each, READERS)
        for layer in each.modules()
    }
    for name, each in model.named_modules(remove_duplicate=False):
        plain = type(each) is nn.Linear or (type(each) is nn.Embedding and each.max_norm is None)
        if name and plain and id(each) not in read:
            yield name, each


def _fitting(
    patterns: Sequence[str], names: Sequence[str], option: str, others: Sequence[str]
) -> list[str]:
    """The names that fit some pattern.

    Raises:
        ValueError: a pattern fits none.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            unfit = [each for each in others if fnmatchcase(each.rpartition(" (")[0], pattern)]
            near = get_close_matches(pattern, names, n=SHOWN, cutoff=0.0)
            said = f"only {', '.join(unfit[:SHOWN])}, which cannot be adapted" if unfit else "none"
            raise ValueError(
                f"lora {option}: {pattern!r} fits {said}; there are {', '.join(near) or 'none'}"
            )
    return [name for name in names if any(fnmatchcase(name, one) for one in patterns)]
