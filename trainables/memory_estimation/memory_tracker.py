"""Tracking of the memory that tensors would hold, while operations run on tensors without data.

A fake tensor has a shape, a dtype and a device, and its storage a size, but no bytes. Lifetimes
are those of real tensors: Python and autograd hold and drop the same references.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainables.optim.norms import local_part

Kind = Literal["parameters", "gradients", "optimizer", "buffers", "samples", "gathered", "others"]
Moment = Literal["forward", "backward", "optimizer"]
ALIGNED = 512  # bytes: torch's GPU allocator rounds sizes up to multiples of it


class CannotForecast(ValueError):
    """A task cannot be run on tensors without data; the message says what to do."""


@dataclass
class LiveStorage:
    """A live storage."""

    kind: Kind
    size: int
    reference: "weakref.ref[torch.UntypedStorage]"


class MemoryEvent(NamedTuple):
    """The live bytes after an operation that allocated some."""

    total: int
    moment: Moment
    operation: object


@dataclass(frozen=True)
class MemoryBreakdown:
    """Bytes that a rank needs for its updates, by kind."""

    parameters: int
    gradients: int
    optimizer: int  # its state, and averaged weights
    activations: int  # kept by the forward pass for the backward pass
    buffers: int
    exchange: int  # buckets in which gradients are sent
    peak: int  # at the fullest moment; not the sum: activations are freed while gradients appear
    fullest: Moment
    host: int = 0  # offloaded to the CPU's memory
    events: Sequence[MemoryEvent] = ()


class MemoryTracker(TorchDispatchMode):
    """Live bytes by kind, and their total after each allocation.

    Args:
        mode: the fake mode whose tensors count.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()
        self._mode = mode
        self.moment: Moment = "forward"
        self.total = 0
        self.events: list[MemoryEvent] = []
        self._entries: dict[int, LiveStorage] = {}

    def enter(self, tensors: Iterable[Tensor], kind: Kind) -> int:
        """Count tensors under a kind from now on, and return the bytes of their storages."""
        sizes, before = {}, self.total
        for tensor in tensors:
            storage = local_part(tensor).untyped_storage()
            self._track(storage)
            entry = self._entries[id(storage)]
            entry.kind = kind
            sizes[id(storage)] = entry.size
        self._record(kind, before)
        return sum(sizes.values())

    def held(self, kind: Kind) -> int:
        """Return the live bytes of a kind."""
        return sum(entry.size for entry in self._entries.values() if entry.kind == kind)

    @property
    def fullest(self) -> MemoryEvent:
        """The event with the largest total."""
        return max(self.events, key=lambda event: event.total)

    def forget_peak(self) -> None:
        """Start a new peak at the current total."""
        self.events.clear()
        self._record("start", 0)

    @contextmanager
    def tracking(self) -> Iterator["MemoryTracker"]:
        """Track all operations within the block."""
        resize = torch.UntypedStorage.resize_

        def resized(storage: Any, size: int) -> Any:
            before = self.total
            result = resize(storage, size)
            self._update_size(storage)
            self._record(resize, before)
            return result

        # fully_shard frees memory this way, without an operation that could be dispatched.
        torch.UntypedStorage.resize_ = resized  # type: ignore[assignment, method-assign]
        try:
            with self:
                yield self
        finally:
            torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:  # most calls by far, so it is answered first
            return args[0].fake_device
        if func is torch.ops.aten._local_scalar_dense.default:
            return self._read_scalar(args[0])
        # Only the result of a DTensor's operation is tracked: to find its shape, DTensor computes
        # with fakes of the unsharded tensors, which take no memory.
        before = self.total
        result = func(*_expand_masks(func, args), **(kwargs or {}))
        for leaf in tree_leaves(result):
            local = leaf._local_tensor if isinstance(leaf, DTensor) else leaf
            if isinstance(local, FakeTensor) and local.fake_mode is self._mode:
                self._track(local.untyped_storage())
        self._record(func, before)
        return result

    def _read_scalar(self, value: Tensor) -> float:
        if self.moment == "optimizer":
            return 1.0  # for example a step count
        raise CannotForecast(
            "the task looks at a number that the model has computed (.item(), bool(), a branch on "
            "a tensor), which a forecast does not have; leave that to the tensors, or measure"
        )

    def _track(self, storage: torch.UntypedStorage) -> None:
        if id(storage) in self._entries:
            self._update_size(storage)
            return
        key = id(storage)
        gone = weakref.ref(storage, partial(self._forget_storage, key))
        self._entries[key] = LiveStorage("others", 0, gone)
        self._update_size(storage)

    def _update_size(self, storage: torch.UntypedStorage) -> None:
        entry = self._entries.get(id(storage))
        if entry is None:
            return
        size = -(-storage.nbytes() // ALIGNED) * ALIGNED
        self.total += size - entry.size
        entry.size = size

    def _record(self, operation: object, before: int) -> None:
        if self.total > before:
            self.events.append(MemoryEvent(self.total, self.moment, operation))

    def _forget_storage(self, key: int, _: object) -> None:
        entry = self._entries.pop(key, None)
        self.total -= 0 if entry is None else entry.size


def _expand_masks(func: Callable[..., object], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace masks, whose values are unknown, by indices that keep every element."""
    if func not in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default):
        return args
    if not any(_is_mask(argument) for argument in args[1]):
        return args
    indices = [
        index
        for argument in args[1]
        for index in (_all_positions(argument) if _is_mask(argument) else [argument])
    ]
    return (args[0], indices, *args[2:])


def _is_mask(index: object) -> bool:
    return isinstance(index, Tensor) and index.dtype == torch.bool


def _all_positions(mask: Tensor) -> list[Tensor]:
    """Return, for each dimension of a mask, as many positions as the mask has elements."""
    return [mask.new_zeros(mask.numel(), dtype=torch.long) for _ in range(mask.ndim)]
