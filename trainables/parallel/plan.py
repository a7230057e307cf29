"""Plans of tensor parallelism: the layers that ranks split, and how.

A column-wise layer gives each rank a share of its outputs; a row-wise layer takes that share as its
inputs and sums over the ranks: one exchange for each pair, and none in between. A parameter with
one number for each head is split like the outputs of a column-wise layer.
Source: Shoeybi et al., Megatron-LM (2019), section 3.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from torch import nn

How = Literal["colwise", "rowwise"]
Plan = Callable[[nn.Module], Mapping[str, How]]

# Each output depends on one input alone, so a share of the outputs needs no other rank.
ELEMENTWISE = (
    nn.CELU,
    nn.Dropout,
    nn.ELU,
    nn.GELU,
    nn.Hardsigmoid,
    nn.Hardswish,
    nn.Hardtanh,
    nn.Identity,
    nn.LeakyReLU,
    nn.LogSigmoid,
    nn.Mish,
    nn.ReLU,
    nn.ReLU6,
    nn.SELU,
    nn.Sigmoid,
    nn.SiLU,
    nn.Softplus,
    nn.Softsign,
    nn.Tanh,
)


def pairs(model: nn.Module) -> dict[str, How]:
    """Plan pairs of linear layers with only elementwise layers between them, in nn.Sequentials."""
    plan: dict[str, How] = {}
    for prefix, module in model.named_modules():
        if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
            first = None
            for name, child in module.named_children():
                name = f"{prefix}.{name}" if prefix else name
                if not isinstance(child, nn.Linear):
                    first = first if isinstance(child, ELEMENTWISE) else None
                elif first is None:
                    first = name
                else:
                    plan |= {first: "colwise", name: "rowwise"}
                    first = None
    return plan


def between(model: nn.Module, plan: Mapping[str, How]) -> Iterator[nn.Module]:
    """Yield the modules of each nn.Sequential between a column-wise layer and its row-wise one."""
    for prefix, module in model.named_modules():
        if isinstance(module, nn.Sequential):
            inside: list[nn.Module] | None = None
            for name, child in module.named_children():
                how = plan.get(f"{prefix}.{name}" if prefix else name)
                if how == "colwise":
                    inside = []
                elif how == "rowwise":
                    yield from inside or ()
                    inside = None
                elif inside is not None:
                    inside.append(child)


def check(model: nn.Module, plan: Mapping[str, How], ranks: int) -> None:
    """Check that a plan can be carried out on this many ranks.

    Raises:
        ValueError: the first fault of the plan.
    """
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    weights = dict(model.named_parameters())
    tables = {
        path: table for path, table in model.named_modules() if isinstance(table, nn.Embedding)
    }
    named = f"the model's linear layers are {', '.join(linear) or 'none'}"
    if not plan:
        raise ValueError(
            "tensor parallelism: no layer to split, for no two linear layers follow one another "
            "in an nn.Sequential; let plan_tensor say which are colwise and which rowwise "
            f"({named}), or choose the strategy ddp or fsdp"
        )
    if any(isinstance(module, nn.RNNBase) for module in model.modules()):
        raise ValueError(
            "tensor parallelism: recurrent layers hold on to plain weights; choose ddp or fsdp"
        )
    for name, how in plan.items():
        if how not in ("colwise", "rowwise"):
            raise ValueError(f"plan_tensor: {name} is {how!r}; choose colwise or rowwise")
        if name in weights or name in tables:
            size = len(weights[name]) if name in weights else tables[name].embedding_dim
            _check_size(name, size, how, ranks)
            continue
        if name not in linear:
            raise ValueError(
                f"plan_tensor names {name!r}, which is no linear layer, embedding or parameter; "
                f"{named}"
            )
        if hasattr(model.get_submodule(name), "lora_A"):
            raise ValueError(f"plan_tensor: {name} is adapted, and cannot be split; choose fsdp")
        _check_linear(name, model.get_submodule(name), how, ranks)
    _check_ties(model, plan)


def _check_linear(name: str, layer: nn.Module, how: str, ranks: int) -> None:
    assert isinstance(layer, nn.Linear)
    width = layer.out_features if how == "colwise" else layer.in_features
    if width % ranks:
        kind = "outputs" if how == "colwise" else "inputs"
        raise ValueError(
            f"plan_tensor: {name} is {how}, but {ranks} ranks cannot split its {width} {kind} "
            f"evenly; make them a multiple of {ranks}, or leave it out of the plan"
        )


def _check_size(name: str, size: int, how: str, ranks: int) -> None:
    """Check a parameter or an embedding of this many numbers (one for each head, say)."""
    if how == "rowwise":
        raise ValueError(f"plan_tensor: {name} is rowwise; only a linear layer can be that")
    if size % ranks:
        raise ValueError(
            f"plan_tensor: {name} is colwise, but {ranks} ranks cannot split {size} evenly; make "
            f"them a multiple of {ranks}, or leave it out of the plan, and the layers around it"
        )


def _check_ties(model: nn.Module, plan: Mapping[str, How]) -> None:
    owners: dict[int, str] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        owner = name if name in plan else name.rpartition(".")[0]
        other = owners.setdefault(id(weight), owner)
        if other != owner and (owner in plan or other in plan):
            raise ValueError(
                f"plan_tensor splits one of {other} and {owner}, which share a weight; "
                "leave it out of the plan"
            )
