"""One model made of several trials' models: their base computes on the rows of all at once.

The models are walked together. Modules with the same frozen weights become one; adapters of one
linear layer become a `JointLinear`; all else runs for each trial by itself (`EachItsOwn`).

Axes: N rows of all trials, K trials, n rows of a trial, I inputs, O outputs, R largest rank.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, starmap
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.utils.rnn import pad_sequence
from torch.utils._pytree import tree_flatten, tree_map

from trainables.lora.layers import LoraLinear
from trainables.sharing.own_state import OwnState
from trainables.training_state import precision as casting

PEFT = ("peft.tuners.lora.layer", "Linear")  # the module and name of peft's adapted layer
HOOKS = ("_forward_pre_hooks", "_forward_hooks")
PLAIN = (bool, int, float, str, tuple, torch.dtype, type(None))  # settings of a module


class NotJoint(Exception):
    """These trials' passes can't be made as one; the message says why."""


@dataclass
class Rows:
    """The trials of a pass, and how many rows of its inputs are of each."""

    trials: list[int] = field(default_factory=list)  # their places among the models
    sizes: list[int] = field(default_factory=list)
    states: list[OwnState] = field(default_factory=list)

    def split(self, values: Any, strict: bool = False) -> list[Any]:
        """Return each trial's part of values whose tensors begin with the rows of all.

        Args:
            strict: refuse what is not made of rows; else every trial gets it whole.

        Raises:
            NotJoint: there is such a value.
        """
        leaves, spec = tree_flatten(values)
        columns = [self._split(leaf, strict) for leaf in leaves]
        return [spec.unflatten(parts) for parts in zip(*columns, strict=True)]

    def _split(self, leaf: Any, strict: bool) -> Sequence[Any]:
        total = sum(self.sizes)
        if isinstance(leaf, Tensor) and leaf.dim() and len(leaf) and len(leaf) % total == 0:
            each = len(leaf) // total
            parts: Sequence[Tensor] = leaf.split([size * each for size in self.sizes])
            return parts
        if strict and not isinstance(leaf, PLAIN):
            what = f"tensor of shape {tuple(leaf.shape)}" if isinstance(leaf, Tensor) else "value"
            raise NotJoint(f"a {what} ({type(leaf).__name__}) is not made of the trials' rows")
        return [leaf] * len(self.sizes)


def concatenated(parts: Sequence[Any]) -> Any:
    """Return values whose tensors have the rows of these, one trial after the other."""
    first, *others = parts
    return tree_map(
        lambda *each: torch.cat(each) if isinstance(each[0], Tensor) else each[0], first, *others
    )


class _OfSeveral(nn.Module):
    """A module in place of several trials' modules; what it lacks is the first one's."""

    def __init__(self, modules: Sequence[nn.Module], rows: Rows) -> None:
        super().__init__()
        self.each, self.rows = [*modules], rows  # no children: train() is the trials' matter

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["each"][0], name)


@dataclass(frozen=True)
class _Adapter:
    """What a trial adds to a linear layer: scaling * B A, of its inputs after dropout."""

    lora_A: Tensor
    lora_B: Tensor
    scaling: float
    dropout: nn.Module

    @property
    def drops(self) -> bool:
        """Whether it sets some of its inputs to zero."""
        return self.dropout.training and getattr(self.dropout, "p", 0.0) > 0


class JointLinear(_OfSeveral):
    """A linear layer with the adapters of several trials, of which some may have none."""

    def __init__(self, modules: Sequence[nn.Module], rows: Rows) -> None:
        super().__init__(modules, rows)
        frozen: tuple[Any, Any] = _linear_of(modules[0]) or (None, None)
        self.frozen_weight, self.frozen_bias = frozen
        self._constants: dict[tuple[float, ...], Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        rows, mixed = self.rows, torch.is_autocast_enabled(x.device.type)
        weight = self.frozen_weight
        output = linear(x if mixed else x.to(weight.dtype), weight, self.frozen_bias)
        found = [_parts(self.each[trial]) for trial in rows.trials]  # they may be switched off
        adapters = [None if each is None else each[1] for each in found]
        present = [each for each in adapters if each is not None]
        if not present:
            return output
        x = x if mixed else x.to(present[0].lora_A.dtype)
        if any(each.drops for each in present):
            parts = zip(adapters, rows.split(x, strict=True), rows.states, strict=True)
            x = torch.cat([_dropped(*part) for part in parts])
        if len(set(rows.sizes)) == 1:
            added = self._added_at_once(adapters, x)
        else:
            each = zip(adapters, rows.split(x, strict=True), strict=True)
            added = torch.cat([self._added(*one) for one in each])
        return output + added.view_as(output).to(output.dtype)

    def _added(self, adapter: _Adapter | None, x: Tensor) -> Tensor:
        """Return what a trial's adapter makes of its inputs."""
        if adapter is None:
            return x.new_zeros(*x.shape[:-1], len(self.frozen_weight))
        return linear(linear(x, adapter.lora_A), adapter.lora_B) * adapter.scaling

    def _added_at_once(self, adapters: Sequence[_Adapter | None], x: Tensor) -> Tensor:
        """Return the same for trials with equally many rows; without an adapter it adds zeros."""
        A_KRI = _stacked([None if each is None else each.lora_A for each in adapters])
        B_KRO = _stacked([None if each is None else each.lora_B.T for each in adapters])
        scaling_K = self._constant(tuple(each.scaling if each else 0.0 for each in adapters), x)
        x_KnI = x.reshape(len(adapters), -1, x.shape[-1])
        h_KnR = torch.bmm(x_KnI, A_KRI.mT)
        return torch.bmm(h_KnR * scaling_K.to(h_KnR.dtype)[:, None, None], B_KRO)

    def _constant(self, values: tuple[float, ...], like: Tensor) -> Tensor:
        """Return numbers as a tensor, which is kept: to copy it to a GPU would wait for it."""
        if values not in self._constants:
            self._constants[values] = torch.tensor(values, device=like.device)
        return self._constants[values]


class EachItsOwn(_OfSeveral):
    """A module of which each trial has its own, such as a trained head: it gets the trial's rows.

    Random numbers that it draws are the trial's.
    """

    def forward(self, *inputs: Any, **named: Any) -> Any:
        rows, outputs = self.rows, []
        parts = rows.split((inputs, named))
        for trial, (own, by_name), state in zip(rows.trials, parts, rows.states, strict=True):
            with state.drawing():
                outputs.append(self.each[trial](*own, **by_name))
        return concatenated(outputs)


def join(models: Sequence[nn.Module], rows: Rows) -> nn.Module:
    """Return a model for the rows of several trials at once; gradients reach their own weights.

    Args:
        models: of one class each, in training.
        rows: what it reads in each pass.
    """
    made: dict[tuple[int, ...], nn.Module] = {}
    return _join(models, rows, made)


def _join(
    modules: Sequence[nn.Module], rows: Rows, made: dict[tuple[int, ...], nn.Module]
) -> nn.Module:
    key = tuple(map(id, modules))
    if key not in made:
        made[key] = _make(modules, lambda each: _join(each, rows, made), rows)
    return made[key]


def _make(
    modules: Sequence[nn.Module], inner: Callable[[Sequence[nn.Module]], nn.Module], rows: Rows
) -> nn.Module:
    if all(starmap(_are_alike, pairwise(modules))):
        joint = copy.copy(modules[0])
        children = zip(*(module._modules.items() for module in modules), strict=True)
        joint.__dict__["_modules"] = {
            each[0][0]: each[0][1] and inner([child for _, child in each]) for each in children
        }
        return joint
    linears = [_linear_of(module) for module in modules]
    if all(one and other and all(map(_is_same, one, other)) for one, other in pairwise(linears)):
        return JointLinear(modules, rows)
    return EachItsOwn(modules, rows)


def _are_alike(one: nn.Module, other: nn.Module) -> bool:
    """Return whether two trials' modules compute the same, but for their children.

    Such whose outputs depend on other rows, or on random numbers, do not.
    """
    if type(one) is not type(other) or isinstance(one, LoraLinear | _DropoutNd | _BatchNorm):
        return isinstance(one, _DropoutNd) and type(one) is type(other) and one.p == other.p == 0
    hooks, other_hooks = ([[*vars(m)[name].values()] for name in HOOKS] for m in (one, other))
    return (
        _kind(one) != PEFT
        and "forward" not in vars(one)
        and settings(one) == settings(other)
        and hooks == other_hooks
        and one._modules.keys() == other._modules.keys()
        and _have_same_weights(one, other)
    )


def settings(module: nn.Module) -> dict[str, object]:
    """Return a module's own numbers and words."""
    own = vars(module)
    return {name: own[name] for name in sorted(own) if isinstance(own[name], PLAIN)}


def _have_same_weights(one: nn.Module, other: nn.Module) -> bool:
    """Return whether all weights that two modules have themselves are frozen, and the same."""
    own, others = one._parameters, other._parameters
    return (
        own.keys() == others.keys()
        and all(_is_same(weight, others[name]) for name, weight in own.items())
        and one._buffers.keys() == other._buffers.keys()
        and all(_are_equal(buffer, other._buffers[name]) for name, buffer in one._buffers.items())
    )


def _is_same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is other:
        return one is None or not one.requires_grad
    if one is None or other is None or one.requires_grad or other.requires_grad:
        return False
    plain = type(one.data) is Tensor and type(other.data) is Tensor
    return plain and one.data_ptr() == other.data_ptr() and one.shape == other.shape


def _are_equal(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)


def _kind(module: nn.Module) -> tuple[str, str]:
    return type(module).__module__, type(module).__name__


def _linear_of(module: nn.Module) -> tuple[Tensor, Tensor | None] | None:
    """Return the weight and bias of a linear layer, adapted or not; None: it is another module."""
    parts = _parts(module)
    linear_layer = parts[0] if parts else module
    known = type(linear_layer) in (nn.Linear, LoraLinear) and "forward" not in vars(module)
    hooked = module._forward_hooks or any(
        hook.__module__ != casting.__name__ for hook in module._forward_pre_hooks.values()
    )
    if not known or hooked or (parts is None and type(module) is LoraLinear):
        return None
    return linear_layer.weight, linear_layer.bias  # type: ignore[return-value]


def _parts(module: Any) -> tuple[nn.Module, _Adapter] | None:
    """Return the frozen layer and the adapter of an adapted one; None: it is another module."""
    if isinstance(module, LoraLinear):
        adapter = _Adapter(module.lora_A, module.lora_B, module.scaling, module.dropout)
        return None if module.replaced else (module, adapter)
    if _kind(module) != PEFT or len(module.active_adapters) != 1:
        return None
    [name] = module.active_adapters
    B, is_varied = module.lora_B[name], module.lora_variant.get(name) is not None  # such as DoRA
    if module.merged or module.disable_adapters or is_varied or B.bias is not None:
        return None
    dropout, scaling = module.lora_dropout[name], module.scaling[name]
    return module.base_layer, _Adapter(module.lora_A[name].weight, B.weight, scaling, dropout)


def _dropped(adapter: _Adapter | None, x: Tensor, state: OwnState) -> Tensor:
    """Return a trial's inputs after the dropout of its adapter."""
    if adapter is None or not adapter.drops:
        return x
    with state.drawing():
        dropped: Tensor = adapter.dropout(x)
    return dropped


def _stacked(matrices: Sequence[Tensor | None]) -> Tensor:
    """Return matrices as one tensor, with zeros for the rows that some of them lack."""
    like = next(matrix for matrix in matrices if matrix is not None)
    each = [like[:0] if matrix is None else matrix for matrix in matrices]
    equal = len({matrix.shape for matrix in each}) == 1
    return torch.stack(each) if equal else pad_sequence(each, batch_first=True)
