"""The repeated blocks of a model: what is recomputed, sharded, or learns at a depth of its own."""

from torch import nn


def blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Name to module of the blocks, in order; empty: the model has no list of modules.

    They are the elements with parameters of the longest nn.ModuleList or nn.Sequential; of several
    equally long ones, the first.
    """
    longest: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList | nn.Sequential):
            prefix = f"{name}." if name else ""
            found = {
                f"{prefix}{key}": each
                for key, each in module.named_children()
                if next(each.parameters(), None) is not None
            }
            longest = found if len(found) > len(longest) else longest
    return longest
