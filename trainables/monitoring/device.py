"""The model of the device that this process trains on. Imports neither torch nor NVML by itself."""

import importlib
import os
import platform
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

CPU_INFO = Path("/proc/cpuinfo")


@cache
def model(gpu: bool) -> str:
    """Return the model of this process's GPU, or of its CPU; empty: unknown.

    Torch is asked if the process has loaded it, otherwise NVML, if `nvidia-ml-py` is installed.

    Args:
        gpu: whether the process has a GPU.
    """
    if not gpu:
        return cpu_model(CPU_INFO)
    torch = sys.modules.get("torch")
    if torch is not None:
        try:
            return torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
        except RuntimeError:  # a broken GPU: training on it says what is wrong
            return ""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return ""
    return visible_model(nvml, os.environ)


def cpu_model(info: Path) -> str:
    """Return the CPU's name in Linux's list of processors; elsewhere what the platform says."""
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def visible_model(nvml: ModuleType, environment: Mapping[str, str]) -> str:
    """Return the model of the first GPU in CUDA_VISIBLE_DEVICES; empty: unknown.

    CUDA numbers the fastest GPU first, NVML follows the bus: a number tells the model only where
    all GPUs are alike, or CUDA_DEVICE_ORDER is PCI_BUS_ID.
    """
    first = environment.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    try:
        nvml.nvmlInit()
        if not first.isdigit():
            return str(nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByUUID(first)))
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        names = [str(nvml.nvmlDeviceGetName(handle)) for handle in handles]
    except nvml.NVMLError:
        return ""
    ordered = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len(set(names)) == 1
    return names[int(first)] if ordered and int(first) < len(names) else ""
