"""Number formats of training, by Lightning's names.

With `-true` weights are stored in the format, with `-mixed` passes are computed in it.

Source of mixed precision and loss scaling: Micikevicius et al., Mixed Precision Training (2018).
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from trainables.training import Precision
from trainables.worker import Diverged

STORED = {
    "64-true": torch.float64,
    "bf16-true": torch.bfloat16,
    "16-true": torch.float16,
}
COMPLEX = {torch.float64: torch.complex128, torch.float32: torch.complex64}
FIRST_SCALE = 2.0**16  # torch's
LEAST_SCALE = 1.0  # below 1, float16 would hold unscaled gradients better


def stored(precision: Precision) -> torch.dtype:
    """Return the format of weights and optimizer state."""
    return STORED.get(precision, torch.float32)


def of_samples(precision: Precision) -> torch.dtype:
    """Return the format of floating-point samples.

    Targets are among them, which 16 bits would round: the model is judged by the true ones.
    """
    return torch.float64 if precision == "64-true" else torch.float32


def convert(model: nn.Module, device: torch.device, precision: Precision) -> nn.Module:
    """Move a model to a device, in the format of a precision; return it."""
    return cast(model.to(device), precision)


def cast(model: nn.Module, precision: Precision) -> nn.Module:
    """Cast a model to the format of a precision, in place; return it.

    In a model with weights of 16 bits every module casts its inputs to the format of its own
    weights, since samples, and outputs of other modules, may be in 32 bits.
    """
    dtype = stored(precision)
    tensors = (*model.parameters(), *model.buffers())
    if any(tensor.dtype != _cast_dtype(tensor, dtype) for tensor in tensors):
        model._apply(lambda tensor: tensor.to(_cast_dtype(tensor, dtype)))
    if any(weight.dtype in (torch.bfloat16, torch.float16) for weight in model.parameters()):
        for module in model.modules():
            own = {weight.dtype for weight in module.parameters(recurse=False)}
            # Autocast casts the inputs of modules in 32 bits.
            by_autocast = precision.endswith("-mixed") and dtype in own
            is_cast = _cast_inputs in module._forward_pre_hooks.values()
            if any(kind.is_floating_point for kind in own) and not (by_autocast or is_cast):
                module.register_forward_pre_hook(_cast_inputs, with_kwargs=True)
    return model


def _cast_dtype(tensor: Tensor, dtype: torch.dtype) -> torch.dtype:
    """Return the format of a tensor where weights are stored as `dtype`.

    Complex numbers keep their kind. Frozen weights in 16 bits keep their format if others have 32:
    more bits would add nothing.
    """
    if tensor.is_complex():
        return COMPLEX.get(dtype, tensor.dtype)
    is_frozen = isinstance(tensor, nn.Parameter) and not tensor.requires_grad
    if not tensor.is_floating_point() or (
        is_frozen and tensor.itemsize == 2 and dtype.itemsize == 4
    ):
        return tensor.dtype
    return dtype


def _cast_inputs(module: nn.Module, args: Any, named: Any) -> Any:
    dtypes = (weight.dtype for weight in module.parameters(recurse=False))
    dtype = next(dtype for dtype in dtypes if dtype.is_floating_point)
    return tree_map(_to(dtype), (args, named))


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    """Return the context for forward passes."""
    if not precision.endswith("-mixed"):
        return nullcontext()
    compute_dtype = torch.float16 if precision == "16-mixed" else torch.bfloat16
    return torch.autocast(device.type, dtype=compute_dtype)


class Scaler(torch.amp.GradScaler):
    """A gradient scaler with which all ranks skip updates, and lower their scale, together.

    Args:
        worst: returns the largest of each value over the ranks that must agree.
    """

    def __init__(
        self, device: torch.device, enabled: bool, worst: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__(device.type, init_scale=FIRST_SCALE, enabled=enabled)
        self._worst = worst

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by the scale, and tell all ranks if any gradient is infinite."""
        super().unscale_(optimizer)
        if self.is_enabled():
            for found_inf in self._found_inf_per_device(optimizer).values():
                found_inf.copy_(self._worst(found_inf.clone()))

    def check(self) -> None:
        """Stop a training whose gradients overflow at any scale.

        Raises:
            Diverged: the scale has fallen too far.
        """
        if self.is_enabled() and self.get_scale() < LEAST_SCALE:
            raise Diverged("gradients overflow float16, or are not finite, at any loss scale")


def scaler(precision: Precision, device: torch.device, worst: Callable[[Tensor], Tensor]) -> Scaler:
    """Return a scaler that keeps small float16 gradients from vanishing; it is off for others."""
    return Scaler(device, precision == "16-mixed", worst)


def keep_in_float32(model: nn.Module, patterns: Sequence[str], stored: torch.dtype) -> None:
    """Let the modules with these names store and compute in float32, unlike the others.

    Args:
        patterns: patterns of full module names, with * and ?, such as `head` or `*.norm`.
        stored: the format of the other modules, to which outputs are cast back.

    Raises:
        ValueError: a pattern fits no module.
    """
    names = [name for name, _ in model.named_modules() if name]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = get_close_matches(pattern, names, n=3, cutoff=0.0)
            raise ValueError(
                f"training.float32_modules: {pattern!r} fits no module of the model; "
                f"there are {', '.join(near) or 'none'}"
            )
    for name, module in model.named_modules():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            module.float()
            module.forward = _in_float32(module.forward, stored)


def _in_float32(forward: Callable[..., Any], stored: torch.dtype) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves = tree_leaves((args, kwargs))
        device = next((leaf.device.type for leaf in leaves if isinstance(leaf, Tensor)), "cpu")
        with torch.autocast(device, enabled=False):
            inputs, named = tree_map(_to(torch.float32), (args, kwargs))
            return tree_map(_to(stored), forward(*inputs, **named))

    return wrapped


def _to(dtype: torch.dtype) -> Callable[[object], object]:
    def cast(value: object) -> object:
        floating = isinstance(value, Tensor) and value.is_floating_point()
        return value.to(dtype) if floating else value  # type: ignore[attr-defined]

    return cast
