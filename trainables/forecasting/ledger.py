"""An account of the memory that tensors hold, kept while operations run on tensors without data.

A fake tensor has a shape, a format and a device, and its storage a size, but no bytes. What is
alive when is as it would be with bytes: Python and autograd hold and drop the same references.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Kind = Literal["parameters", "gradients", "optimizer", "buffers", "samples", "gathered", "others"]
Moment = Literal["forward", "backward", "optimizer"]
ALIGNED = 512  # bytes: what torch's allocator of GPU memory rounds up to


class NotForeseen(ValueError):
    """What a task does cannot be followed without its numbers; the message says what to do."""


@dataclass
class Entry:
    """One storage that is alive."""

    kind: Kind
    size: int
    reference: "weakref.ref[torch.UntypedStorage]"


class Ledger(TorchDispatchMode):
    """Bytes that are alive, by kind; `peak` is the most at one moment, `fullest` when that was.

    Args:
        mode: of the tensors that count.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()
        self._mode = mode
        self.moment: Moment = "forward"
        self.total = self.peak = 0
        self.fullest: Moment = "forward"
        self._entries: dict[int, Entry] = {}

    def enter(self, tensors: Iterable[Tensor], kind: Kind) -> int:
        """Count these under a kind from now on; returns the bytes of the storages they lie in."""
        found = {}
        for tensor in tensors:
            storage = _local(tensor).untyped_storage()
            self._see(storage)
            entry = self._entries[id(storage)]
            entry.kind = kind
            found[id(storage)] = entry.size
        return sum(found.values())

    def held(self, kind: Kind) -> int:
        """Bytes of a kind that are alive."""
        return sum(entry.size for entry in self._entries.values() if entry.kind == kind)

    def forget_peak(self) -> None:
        """From here on the peak is sought anew."""
        self.peak, self.fullest = self.total, self.moment

    @contextmanager
    def kept(self) -> Iterator["Ledger"]:
        """Within it all operations are in the account."""
        resize = torch.UntypedStorage.resize_

        def resized(storage: Any, size: int) -> Any:
            found = resize(storage, size)
            self._change(storage)
            return found

        # fully_shard gives memory back so, past all operations.
        torch.UntypedStorage.resize_ = resized  # type: ignore[assignment, method-assign]
        try:
            with self:
                yield self
        finally:
            torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if func is torch.ops.aten._local_scalar_dense.default:
            return self._number(args[0])
        # Of a DTensor's operation the result alone is seen: to know its shape, DTensor works on
        # fakes of the whole, which take no memory.
        found = func(*_whole(func, args), **(kwargs or {}))
        for leaf in tree_leaves(found):
            own = leaf._local_tensor if isinstance(leaf, DTensor) else leaf
            if isinstance(own, FakeTensor) and own.fake_mode is self._mode:
                self._see(own.untyped_storage())
        return found

    def _number(self, value: Tensor) -> float:
        if self.moment == "optimizer":
            return 1.0  # a count of steps, say
        raise NotForeseen(
            "the task looks at a number that the model has computed (.item(), bool(), a branch on "
            "a tensor), which a forecast does not have; leave that to the tensors, or measure"
        )

    def _see(self, storage: torch.UntypedStorage) -> None:
        if id(storage) in self._entries:
            self._change(storage)
            return
        key = id(storage)
        gone = weakref.ref(storage, partial(self._drop, key))
        self._entries[key] = Entry("others", 0, gone)
        self._change(storage)

    def _change(self, storage: torch.UntypedStorage) -> None:
        entry = self._entries.get(id(storage))
        if entry is None:
            return
        size = -(-storage.nbytes() // ALIGNED) * ALIGNED
        self.total += size - entry.size
        entry.size = size
        if self.total > self.peak:
            self.peak, self.fullest = self.total, self.moment

    def _drop(self, key: int, _: object) -> None:
        entry = self._entries.pop(key, None)
        self.total -= 0 if entry is None else entry.size


def _local(tensor: Tensor) -> Tensor:
    """This rank's part."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _whole(func: Callable[..., object], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments where a mask, whose values nobody knows, keeps everything."""
    if func not in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default):
        return args
    if not any(_masks(each) for each in args[1]):
        return args
    whole = [index for each in args[1] for index in (_everything(each) if _masks(each) else [each])]
    return (args[0], whole, *args[2:])


def _masks(index: object) -> bool:
    return isinstance(index, Tensor) and index.dtype == torch.bool


def _everything(mask: Tensor) -> list[Tensor]:
    """As many positions as a mask has elements, for each of its dimensions."""
    return [mask.new_zeros(mask.numel(), dtype=torch.long) for _ in range(mask.ndim)]
