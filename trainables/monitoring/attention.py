"""The kernels of scaled dot-product attention, which torch chooses by device, shape and format."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

FUSED = ("flash", "efficient", "cudnn")


@contextmanager
def count_kernels() -> Iterator[Counter[str]]:
    """Count calls in forward passes by kernel, within this context: flash, efficient, cudnn, math.

    Calls in a model compiled by `torch.compile` are not seen.
    """
    calls: Counter[str] = Counter()
    with _CountMath(calls), _CountFused(calls):
        yield calls


def metrics(calls: Mapping[str, int]) -> dict[str, float]:
    """Return the calls by the names under which they are reported."""
    return {f"perf/attention_{name}": float(number) for name, number in calls.items() if number}


class _CountMath(TorchFunctionMode):
    """A counter of calls in which no fused kernel ran, only plain products of matrices."""

    def __init__(self, calls: Counter[str]) -> None:
        super().__init__()
        self._calls = calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is scaled_dot_product_attention:
            before = self._calls.total()
            result = func(*args, **(kwargs or {}))
            self._calls["math"] += self._calls.total() == before
            return result
        return func(*args, **(kwargs or {}))


class _CountFused(TorchDispatchMode):
    """A counter of fused kernels."""

    def __init__(self, calls: Counter[str]) -> None:
        super().__init__()
        self._calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        if "_scaled_dot_product_" in name and "backward" not in name:
            self._calls.update(kernel for kernel in FUSED if kernel in name)
        return func(*args, **(kwargs or {}))
