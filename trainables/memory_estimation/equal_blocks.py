"""The memory of a deep model from that of shallow ones: equal blocks add equal amounts.

At a place counted from the beginning or from the end of a pass, the live bytes are a linear
function of the number of blocks; in between they grow or fall evenly from block to block. Both are
checked: by three depths, and by the peak of the deepest of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

from torch import nn

from trainables.blocks import blocks
from trainables.memory_estimation.memory_tracker import MemoryBreakdown, MemoryEvent

DEPTHS = (3, 4, 5)  # numbers of blocks; three, to see whether bytes lie on a line
FEWEST = 12  # fewer blocks are run themselves


def equal_blocks(model: nn.Module) -> list[str]:
    """Return the names of the most equal blocks that follow one another in a list."""
    runs = groupby(
        blocks(model).items(), lambda block: (block[0].rpartition(".")[0], _signature(block[1]))
    )
    return max(([name for name, _ in run] for _, run in runs), key=len, default=[])


def _signature(block: nn.Module) -> object:
    """Return what equal blocks share: classes, formats of tensors, and options except integers.

    Integers are a block's index, or sizes that the tensors show.
    """
    return [
        (
            name,
            type(module),
            [
                (tensor.shape, tensor.dtype, tensor.requires_grad)
                for tensor in chain(module.parameters(False), module.buffers(False))
            ],
            [
                (key, value if isinstance(value, bool | float | str) else type(value))
                for key, value in vars(module).items()
            ],
        )
        for name, module in block.named_modules()
    ]


def shorten(model: nn.Module, depth: int) -> None:
    """Keep `depth` of the model's equal blocks, in place."""
    names = equal_blocks(model)
    parent, _, key = names[depth].rpartition(".")
    elements = model.get_submodule(parent)
    assert isinstance(elements, nn.ModuleList | nn.Sequential)
    del elements[int(key) : int(key) + len(names) - depth]


def extrapolate(run: Callable[[int], MemoryBreakdown], number: int) -> MemoryBreakdown | None:
    """Return the memory of a model of `number` equal blocks; None: it is no linear function.

    Args:
        run: returns the memory of a model with so many blocks.
    """
    try:
        models = [run(depth) for depth in DEPTHS]
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return None  # the model needs all its blocks
    last, rest = models[-1], number - DEPTHS[-1]
    sizes: dict[str, Any] = {
        field.name: _line([getattr(model, field.name) for model in models], rest)
        for field in fields(last)
        if field.name not in ("peak", "fullest", "events")
    }
    fullest, known = (_fullest(models, more) for more in (rest, 0))
    if fullest is None or known is None or None in sizes.values() or known.total != last.peak:
        return None
    return replace(last, **sizes, peak=fullest.total, fullest=fullest.moment, events=())


def _line(sizes: Sequence[int], number: int) -> int | None:
    """Return the bytes with `number` blocks more than the last; None: they lie on no line."""
    few, more, most = sizes
    return most + number * (most - more) if most - more == more - few else None


def _fullest(models: Sequence[MemoryBreakdown], number: int) -> MemoryEvent | None:
    """Return the event of most bytes of a model with `number` blocks more than the last.

    Each is counted from the beginning or from the end of its pass; None: one lies on no line.
    """
    passes = ([[*run] for _, run in groupby(m.events, attrgetter("moment"))] for m in models)
    events: list[MemoryEvent | None] = []
    for runs in zip(*passes, strict=True):
        from_start = [_deep_event(places, number) for places in zip(*runs, strict=False)]
        places_from_end = zip(*(run[::-1] for run in runs), strict=False)
        from_end = [_deep_event(places, number) for places in places_from_end][::-1]
        events += [
            max(filter(None, either), key=attrgetter("total"), default=None)
            for either in zip(from_start, from_end, strict=True)
        ]
    known = [event for event in events if event is not None]
    return max(known, key=attrgetter("total")) if len(known) == len(events) else None


def _deep_event(places: Sequence[MemoryEvent], number: int) -> MemoryEvent | None:
    """Return the deep model's event at a place; None: the place is another one in each model."""
    total = _line([event.total for event in places], number)
    same = len({event.operation for event in places}) == 1
    return places[-1]._replace(total=total) if same and total is not None else None
