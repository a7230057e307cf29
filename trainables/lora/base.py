"""The base that trials fine-tune, which those of one process may share."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import Parameter

from trainables.randomness import preserved, seed_all


@dataclass
class _LoadedBase:
    """The base that `load_base` loaded last, in a process whose trials share it."""

    shared: bool = False
    key: object = None
    model: nn.Module | None = None


_BASE = _LoadedBase()


def keep_bases() -> None:
    """Let `load_base` keep what it loads, for the trials of this process to share."""
    _BASE.shared = True


def kept_weights() -> list[Parameter]:
    """Return the weights of the base that `load_base` keeps."""
    return [] if _BASE.model is None else [*_BASE.model.parameters()]


def load_base(load: Callable[..., nn.Module], *arguments: object) -> nn.Module:
    """Return the model that `load` returns for these arguments, all of its weights frozen.

    Where trials share a base (`training.share_base`), it is loaded once: each trial gets modules of
    its own, and of their weights only those that it then trains take memory again. Random numbers
    that loading draws are the same for every trial.

    Args:
        load: such as `AutoModelForCausalLM.from_pretrained`; it may not depend on anything else.
        arguments: compared with those of the last call.
    """
    if _BASE.shared and _BASE.model is not None and _BASE.key == (load, arguments):
        return _with_weights_of(_BASE.model)
    if _BASE.shared:
        _BASE.model = None  # before the next one takes memory
    with preserved():
        seed_all(0)
        model = load(*arguments).requires_grad_(False)
    if not _BASE.shared:
        return model
    _BASE.key, _BASE.model = (load, arguments), model
    return _with_weights_of(model)


def _with_weights_of(model: nn.Module) -> nn.Module:
    """Return a copy of a model whose weights use the same memory."""
    same = {
        # Of its data: with detach(), a change of a weight that a trial trains counts as one of all.
        id(weight): Parameter(weight.data, requires_grad=False)
        if type(weight.data) is Tensor
        else weight  # a quantized one, which nobody trains
        for weight in model.parameters()
    }
    return copy.deepcopy(model, same)
