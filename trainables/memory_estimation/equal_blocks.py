"""The memory of a deep model from that of shallow ones: equal blocks add equal amounts.

After an operation near the beginning or end of a pass, the live bytes are a linear function of the
number of blocks. In between they grow or fall evenly from block to block, so no peak is missed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import chain, groupby, takewhile
from operator import attrgetter

from torch import nn

from trainables.blocks import blocks
from trainables.memory_estimation.memory_tracker import MemoryBreakdown, MemoryEvent

DEPTHS = (3, 4, 5)  # numbers of blocks; the last one checks what the others predict
FEWEST = 14  # fewer blocks are run themselves


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
        first, second, third = map(run, DEPTHS)
        if _add_blocks(first, second, 1) != replace(third, events=()):
            return None
        return _add_blocks(second, third, number - DEPTHS[-1])
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return None  # the model needs all its blocks


def _add_blocks(few: MemoryBreakdown, more: MemoryBreakdown, number: int) -> MemoryBreakdown:
    """Return the memory with `number` blocks more than `more`, which has one more than `few`."""
    sizes = {
        field.name: _line(getattr(few, field.name), getattr(more, field.name), number)
        for field in fields(few)
        if isinstance(getattr(few, field.name), int)
    }
    fullest = max(_events(few.events, more.events, number), key=attrgetter("total"))
    return replace(few, **sizes | {"peak": fullest.total}, fullest=fullest.moment, events=())


def _line(few: int, more: int, number: int) -> int:
    return more + number * (more - few)


def _events(
    few: Sequence[MemoryEvent], more: Sequence[MemoryEvent], number: int
) -> Iterator[MemoryEvent]:
    """Yield events of the deep model: the first and last ones of each pass."""
    passes = (
        [[*run] for _, run in groupby(events, attrgetter("moment"))] for events in (few, more)
    )
    for short, long in zip(*passes, strict=True):
        from_start = _common(short, long)
        from_end = _common(short[::-1], long[::-1])
        middle = (from_start + len(short) - from_end) // 2
        later = long[:middle] + long[len(long) - len(short) + middle :]
        for event, other in zip(short, later, strict=True):
            yield event._replace(total=_line(event.total, other.total, number))


def _common(short: Sequence[MemoryEvent], long: Sequence[MemoryEvent]) -> int:
    """Return how many operations both begin with."""
    pairs = zip(short, long, strict=False)
    return len([*takewhile(lambda pair: pair[0].operation == pair[1].operation, pairs)])
