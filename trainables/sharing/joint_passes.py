"""Passes of several trials made as one; see `training.joint_passes`.

A trial that wants a forward pass waits until no other has anything else to do. Those of one kind
are then made as one pass on the rows of all, and so are the backward passes that follow. A trial's
loss is computed from its own rows: it gets the gradients that it would get alone, but for rounding.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves

from trainables.errors import out_of_memory, text_of
from trainables.modules import restored
from trainables.sharing.joint_model import EachItsOwn, NotJoint, Rows, concatenated, join, settings
from trainables.sharing.own_state import OwnState, drawn
from trainables.sharing.wanted import Wanted
from trainables.trainer.forward_backward import run_backward
from trainables.worker import PassLost

# Difference between a trial's outputs beside others and alone, in parts of the largest output.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
ROUGH = 0.05  # where 16 bits, or 19, are used


@dataclass(eq=False)
class Pass(Wanted):
    """A pass that an order asks for."""

    of: "JointModel"


@dataclass(eq=False)
class Forward(Pass):
    """A forward pass in training."""

    inputs: tuple[Any, ...]
    named: dict[str, Any]
    autocast: torch.dtype | None = None  # None: it is off
    grad: bool = True
    output: Any = field(default=None, init=False)

    def run(self, model: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Run a model as the order wants it to be run."""
        kind, mixed = self.of.own.device.type, self.autocast is not None
        with (
            torch.set_grad_enabled(self.grad),
            torch.autocast(kind, self.autocast, enabled=mixed, cache_enabled=False),
        ):
            return model(*inputs, **named)

    def alone(self, own: OwnState) -> Any:
        """Make this pass only, in an order's state."""
        own.enter()
        try:
            return self.run(self.of.module, self.inputs, self.named)
        finally:
            own.leave()

    @cached_property
    def rows_and_kind(self) -> tuple[int, object]:
        """Return the number of rows, and what passes have in common that can be made as one.

        Raises:
            NotJoint: the inputs are not made of rows.
        """
        leaves, spec = tree_flatten((self.inputs, self.named))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()]
        count = len(tensors[0]) if tensors else 0
        if not count or any(len(tensor) != count for tensor in tensors):
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors) or "none"
            raise NotJoint(f"the model's inputs do not have equally many rows (shapes: {shapes})")
        kinds = [
            (leaf.shape[1:], leaf.dtype, leaf.requires_grad) if isinstance(leaf, Tensor) else leaf
            for leaf in leaves
        ]
        return count, (self.family, spec, self.autocast, self.grad, repr(kinds))

    @cached_property
    def family(self) -> object:
        """Return what models have in common that can be joined."""
        return type(self.of.module), repr(settings(self.of.module))


@dataclass(eq=False)
class Backward(Pass):
    """A backward pass from these roots with these gradients."""

    roots: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]


class JointModel(nn.Module):
    """An order's model, whose passes in training are made with those of others."""

    def __init__(self, model: nn.Module, own: OwnState, ask: Callable[[Wanted], None]) -> None:
        super().__init__()
        self.module, self.own, self._ask = model, own, ask
        self.joined = 0  # forward passes that were made with others'
        self.is_amid = False  # whether one of them awaits its backward pass
        self.is_apart = False  # whether its passes can't be made with others'

    def forward(self, *inputs: Any, **named: Any) -> Any:
        torch.clear_autocast_cache()  # the contexts of waiting orders keep it alive over updates
        needs_own = any(
            isinstance(leaf, Tensor) and leaf.requires_grad for leaf in tree_leaves((inputs, named))
        )
        if self.is_apart or not self.training or needs_own or torch.is_inference_mode_enabled():
            return self.module(*inputs, **named)
        kind, wanted = self.own.device.type, Forward(self, inputs, named)
        wanted.autocast = (
            torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        )
        wanted.grad = torch.is_grad_enabled()
        with torch.autocast(kind, enabled=False), torch.enable_grad():
            self.ask(wanted)
        return wanted.output

    def ask(self, wanted: Pass) -> None:
        """Wait until a pass is made."""
        self._ask(wanted)
        if wanted.error is not None:
            raise wanted.error

    def backward(self, roots: tuple[Tensor, ...], gradients: tuple[Tensor, ...]) -> None:
        """Make a backward pass, with all orders whose forward passes were made with this one's."""
        if self.is_amid:
            self.is_amid = False
            self.ask(Backward(self, roots, gradients))
        else:
            run_backward(roots, gradients)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


class JointPasses:
    """Makes the passes that the orders of a process wait for."""

    for_all = False

    def __init__(self) -> None:
        self._family: object = None  # of the joint model
        self._models: list[nn.Module] = []  # those of the joint model
        self._joint: nn.Module | None = None
        self._rows = Rows()
        self._most = sys.maxsize  # forward passes in one; fewer once memory was short

    def forget(self) -> None:
        """Let go of all models: an order has ended."""
        self._models, self._joint, self._rows = [], None, Rows()

    def make(self, waiting: Sequence[Pass]) -> Sequence[Wanted]:
        """Make some of these passes, and return them."""
        forwards = [each for each in waiting if isinstance(each, Forward)]
        backwards = [each for each in waiting if isinstance(each, Backward)]
        # An order that makes several forward passes before its backward pass has others wait.
        forwards.sort(key=lambda each: not each.of.is_amid)
        if backwards and not (forwards and forwards[0].of.is_amid):
            self._make_backward(backwards)
            return [*backwards]
        kinds: dict[object, list[Forward]] = {}
        for each in forwards:
            try:
                kinds.setdefault(each.rows_and_kind[1], []).append(each)
            except NotJoint as error:
                _part([each], error)
                _make_alone([each])
                return [each]
        chosen = next(iter(kinds.values()))[: self._most]
        failure = self._make_forward(chosen) if len(chosen) > 1 else None
        if failure is not None and out_of_memory(failure):
            self._lose(chosen, failure)
            return []  # the next ones are smaller
        if failure is not None or len(chosen) == 1:
            _make_alone(chosen)
        if failure is not None and not any(each.error for each in chosen):
            self._lose(chosen, failure)  # otherwise an order is to blame whose own pass fails
        return [*chosen]

    def _make_forward(self, chosen: Sequence[Forward]) -> Exception | None:
        """Make forward passes as one; return the reason if it could not be made."""
        before = [replace(each.of.own) for each in chosen]
        try:
            copies = [replace(own) for own in before]
            expected = [_expected(*each) for each in zip(chosen, copies, strict=True)]
            outputs = self._run_joint(chosen)
            checks = [
                _check(each, alone, output)
                for each, alone, output in zip(chosen, expected, outputs, strict=True)
            ]
        except Exception as error:  # noqa: BLE001 - the user's model may raise anything
            for each, own in zip(chosen, before, strict=True):
                each.of.own.draw_as(own)
            return error.with_traceback(None)  # its traceback holds the activations
        for each, output, problem in zip(chosen, outputs, checks, strict=True):
            each.output, each.error = output, problem
            each.of.is_amid |= each.grad
            each.of.joined += 1
        return None

    def _run_joint(self, chosen: Sequence[Forward]) -> list[Any]:
        models = [each.of.module for each in chosen]
        family = chosen[0].family
        if self._joint is None or family != self._family or not {*models} <= {*self._models}:
            kept = self._models if family == self._family else []
            self._family, self._joint = family, None
            self._models = [*dict.fromkeys((*kept, *models))]
            self._joint = join(self._models, self._rows)
        if isinstance(self._joint, EachItsOwn):
            name = type(models[0]).__name__
            raise NotJoint(f"{name} has trained weights, hooks, or a forward of its own")
        rows = self._rows
        rows.trials = [self._models.index(model) for model in models]
        rows.sizes = [each.rows_and_kind[0] for each in chosen]
        rows.states = [each.of.own for each in chosen]
        inputs, named = concatenated([(each.inputs, each.named) for each in chosen])
        before = drawn(rows.states[0].device)
        try:
            outputs = rows.split(chosen[0].run(self._joint, inputs, named), strict=True)
        finally:
            rows.sizes = []  # where a backward pass would compute anew, it fails
        if not all(map(torch.equal, before, drawn(rows.states[0].device))):
            raise NotJoint(f"{type(models[0]).__name__} draws numbers outside of nn.Dropout")
        return outputs

    def _make_backward(self, chosen: Sequence[Backward]) -> None:
        roots = tuple(root for each in chosen for root in each.roots)
        gradients = tuple(gradient for each in chosen for gradient in each.gradients)
        try:
            run_backward(roots, gradients)
        except Exception as error:  # noqa: BLE001 - hooks of the user's model may raise anything
            self._lose(chosen, error)
            for each in chosen:
                each.error = PassLost(text_of(error))

    def _lose(self, chosen: Sequence[Pass], error: Exception) -> None:
        """Let fewer passes be made as one, or these orders make theirs alone."""
        if out_of_memory(error):
            self._most = min(self._most, max(1, len(chosen) // 2))
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        else:
            _part(chosen, error)


def _part(chosen: Sequence[Pass], error: Exception) -> None:
    """Let these orders make their passes alone from now on."""
    for each in chosen:
        each.of.is_apart = True
        each.of.own.print(
            f"training.joint_passes: this trial's passes are made alone from now on: "
            f"{text_of(error)}"
        )


def _make_alone(chosen: Sequence[Forward]) -> None:
    for each in chosen:
        try:
            each.output = each.alone(each.of.own)
        except Exception as error:  # noqa: BLE001 - the user's model may raise anything
            each.error = error


def _expected(wanted: Forward, own: OwnState) -> Any:
    """Return the outputs that an order gets alone; None: this pass is not checked.

    The first are those of the base, whose adapters add nothing yet: so the 2nd, 4th, 8th and so on
    are checked too.

    Args:
        own: a copy of the order's state.
    """
    if wanted.of.joined & (wanted.of.joined + 1):
        return None
    model = wanted.of.module
    with restored(model.buffers()):
        before = _kept(model)
        outputs = replace(wanted, grad=False).alone(own)
        if any(one != other for one, other in zip(before, _kept(model), strict=True)):
            raise NotJoint(f"{type(model).__name__} keeps something of its forward pass")
    return outputs


def _kept(model: nn.Module) -> list[tuple[object, ...]]:
    """Return what changes if a module keeps something: which objects it has, and its buffers."""
    return [
        (
            *((name, id(value)) for name, value in vars(module).items()),
            *(buffer._version for buffer in module.buffers(recurse=False)),
        )
        for module in model.modules()
    ]


def _check(made: Forward, expected: Any, outputs: Any) -> Exception | None:
    """Return an error if an order does not get the outputs that it gets alone."""
    if expected is None:
        return None
    model = made.of.module
    weights = {weight.dtype for weight in model.parameters()}
    is_rough = made.autocast is not None or not weights <= TOLERANCE.keys()
    is_rough |= torch.get_float32_matmul_precision() != "highest"
    for one, other in zip(tree_leaves(expected), tree_leaves(outputs), strict=True):
        if not isinstance(one, Tensor) or not one.is_floating_point() or not one.numel():
            continue
        largest = max(one.abs().max().item(), torch.finfo(one.dtype).tiny)
        difference = (one - other.detach()).abs().max().item() / largest
        if difference > (ROUGH if is_rough else TOLERANCE.get(one.dtype, ROUGH)):
            return ValueError(
                f"training.joint_passes: outputs of {type(model).__name__} differ from those of "
                f"the trial alone, by {difference:.1g} of the largest; a module looks at the rows "
                "of other trials, or computes with another one's weights; leave joint_passes out"
            )
    return None
