"""Parameter groups: which weights decay, and how fast each depth of a model learns.

Sources: decoupled decay, Loshchilov & Hutter, Decoupled Weight Decay Regularization (2019); no
decay of biases and norms, Goyal et al., Accurate, Large Minibatch SGD (2017), section 5.3;
layer-wise rates, Clark et al., ELECTRA (2020), appendix A, with BEiT's numbering of depths.
"""

from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.nn import Parameter

from trainables.blocks import blocks

# These norms can have weights of several dimensions; all others have vectors.
NORMS = (nn.LayerNorm, nn.RMSNorm)


@dataclass(frozen=True)
class _Kind:
    """The properties that the weights of a group share."""

    depth: int
    decays: bool
    mesh: DeviceMesh | None  # None: plain tensors; one call of an optimizer cannot mix meshes


def split(
    model: nn.Module, lr: float, weight_decay: float, layer_decay: float
) -> list[dict[str, Any]]:
    """Group the trained weights, with the `lr`, `weight_decay` and `name` of each group.

    The layout of groups does not depend on weight_decay, and on layer_decay only in whether it is
    1, so the momenta of a trial fit another trial with other values.

    Args:
        layer_decay: the ratio of the learning rates of neighbouring depths; 1: all learn at lr.
    """
    kinds: dict[_Kind, list[Parameter]] = {}
    depth_of = depths(model) if layer_decay != 1 else {}
    norms = [module for module in model.modules() if isinstance(module, NORMS)]
    excluded = {id(weight) for norm in norms for weight in norm.parameters(recurse=False)}
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            decays = weight.ndim > 1 and id(weight) not in excluded
            mesh = weight.device_mesh if isinstance(weight, DTensor) else None
            kinds.setdefault(_Kind(depth_of.get(name, 0), decays, mesh), []).append(weight)
    last = max(depth_of.values(), default=0)
    return [
        {
            "params": weights,
            "lr": lr * layer_decay ** (last - kind.depth),
            "weight_decay": weight_decay if kind.decays else 0.0,
            "name": _group_name(kind, last),
        }
        for kind, weights in kinds.items()
    ]


def depths(model: nn.Module) -> dict[str, int]:
    """Return each parameter's depth by name: 0 before the blocks, then 1, 2, ..., one more after.

    Depths follow the order in which a model registers its modules; tied weights count where they
    are registered first.
    """
    names = list(blocks(model))
    depth_of, after = {}, False
    for name, _ in model.named_parameters():
        place = next((at for at, block in enumerate(names) if name.startswith(f"{block}.")), None)
        if place is not None:
            after = True
            depth_of[name] = place + 1
        else:
            depth_of[name] = len(names) + 1 if after else 0
    return depth_of


def hidden_matrices(model: nn.Module) -> list[Parameter]:
    """Return the matrices between a model's embeddings and its output layer.

    Embeddings are nn.Embedding's weights. The output layer is the module with a matrix that the
    model registers last, be its weight tied to an embedding or not.
    """
    owners = [
        (module, weight)
        for module in model.modules()
        for weight in module.parameters(recurse=False)
        if weight.ndim == 2 and not isinstance(module, NORMS)
    ]
    outer = {
        id(weight)
        for module, weight in owners
        if module is owners[-1][0] or isinstance(module, nn.Embedding | nn.EmbeddingBag)
    }
    return [weight for _, weight in owners if id(weight) not in outer]


def _group_name(kind: _Kind, last: int) -> str:
    depth = [f"depth {kind.depth} of {last}"] if last else []
    names = kind.mesh.mesh_dim_names if kind.mesh is not None else None
    mesh = [f"mesh {' x '.join(names)}"] if names else []
    return ", ".join([*depth, "decay" if kind.decays else "no decay", *mesh])
