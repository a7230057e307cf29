"""The memory of this rank: of its GPU, or of its process if it has none."""

from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

GB = 1e9
STATUS = Path("/proc/self/status")  # Linux; reading it once costs less than psutil's two reads
REFS = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Memory:
    """Memory in bytes; `peak` is the maximum since the last reset, or since the start.

    On a GPU: memory of tensors; `reserved` is torch's share of the device, its cache included.
    On a CPU: the process's resident size; `peak` is None outside Linux; `reserved` is None.
    """

    now: int
    peak: int | None
    reserved: int | None

    @property
    def metrics(self) -> dict[str, float]:
        sizes = {
            "perf/memory_gb": self.now,
            "perf/memory_peak_gb": self.peak,
            "perf/memory_reserved_gb": self.reserved,
        }
        return {name: size / GB for name, size in sizes.items() if size is not None}


def measure(device: torch.device) -> Memory:
    """Measure the memory in use now, without waiting for the device."""
    if device.type == "cuda":
        stats = torch.cuda.memory_stats(device)
        return Memory(
            now=stats.get("allocated_bytes.all.current", 0),
            peak=stats.get("allocated_bytes.all.peak", 0),
            reserved=stats.get("reserved_bytes.all.current", 0),
        )
    try:
        status = STATUS.read_text()
    except FileNotFoundError:
        return Memory(psutil.Process().memory_info().rss, None, None)
    # getrusage's peak would include the parent's memory from before it started this process.
    return Memory(_bytes(status, "VmRSS:"), _bytes(status, "VmHWM:"), None)


def reset_peak(device: torch.device) -> None:
    """Restart the measurement of `peak`."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif REFS.exists():
        REFS.write_text("5")  # proc(5): sets the peak to the present size


def _bytes(status: str, name: str) -> int:
    return int(status.partition(name)[2].split(maxsplit=1)[0]) * 1024
