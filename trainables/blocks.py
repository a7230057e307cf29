"""The repeated blocks of a model: units of recomputation, sharding and layer-wise decay."""

from collections import Counter
from collections.abc import Iterator, Mapping

from torch import nn


def blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Return the blocks by name, in order; empty if the model has no list of modules.

    Models of Hugging Face's transformers name the classes of their blocks. In other models, blocks
    are the elements with parameters of the longest of the outermost lists (nn.ModuleList or
    nn.Sequential; the first of equally long ones), and of other lists with the same kind of
    element. So the experts of a layer are parts of it, not blocks.
    """
    if named := _transformers_blocks(model):
        return named
    lists = list(_outermost_lists("", model))
    longest = max(lists, key=len, default={})
    kinds = set(map(_kind, longest.values()))
    return {
        name: block
        for elements in lists
        if elements is longest or kinds & set(map(_kind, elements.values()))
        for name, block in elements.items()
    }


def _transformers_blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Return the list elements that a transformers model does not allow to be split by device."""
    classes = {
        name
        for module in model.modules()
        for name in getattr(module, "_no_split_modules", None) or ()
    }
    return {
        f"{prefix}.{key}": block
        for prefix, module in model.named_modules()
        if isinstance(module, nn.ModuleList)
        for key, block in module.named_children()
        if _kind(block) in classes
    }


def _outermost_lists(name: str, module: nn.Module) -> Iterator[dict[str, nn.Module]]:
    """Yield the elements of each outermost list in a module.

    Lists inside an element are searched too, unless elements of its kind repeat in the list: an
    nn.Sequential(embedding, encoder, head) only chains calls, and the blocks are the encoder's.
    """
    prefix = f"{name}." if name else ""
    children = {
        f"{prefix}{key}": child
        for key, child in module.named_children()
        if next(child.parameters(), None) is not None
    }
    inner = {key_: list(_outermost_lists(key_, child)) for key_, child in children.items()}
    if not isinstance(module, nn.ModuleList | nn.Sequential):
        for lists in inner.values():
            yield from lists
        return
    repeated = _repeated_kinds(children)
    if isinstance(module, nn.ModuleList) and len(children) == 1:
        repeated = set(map(_kind, children.values()))
    nested = {
        key_: [
            child
            for child in inner[key_]
            if _kind(element) not in repeated and _repeated_kinds(child)
        ]
        for key_, element in children.items()
    }
    if not repeated and any(nested.values()):
        for lists in nested.values():
            yield from lists
        return
    elements: dict[str, nn.Module] = {}
    for key_, element in children.items():
        for child in nested[key_] or [{key_: element}]:
            elements |= child
    yield elements


def _repeated_kinds(elements: Mapping[str, nn.Module]) -> set[str]:
    """Return the kinds that occur more than once."""
    return {kind for kind, times in Counter(map(_kind, elements.values())).items() if times > 1}


def _kind(module: nn.Module) -> str:
    """Return a module's class name without FSDP's prefix; for lists, with the kinds of elements.

    Two nn.Sequential of the same layers are two blocks; one of layers and one of blocks are not.
    """
    name = type(module).__name__.removeprefix("FSDP")
    if isinstance(module, nn.ModuleList | nn.Sequential):
        return f"{name}({', '.join(map(_kind, module.children()))})"
    return name
