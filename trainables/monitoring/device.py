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
    """Return the model of the first GPU in CUDA_VISIBLE_DEVICES; empty: unknown."""
    try:
        gpus = visible_gpus(nvml, environment)
        return str(nvml.nvmlDeviceGetName(gpus[0])) if gpus else ""
    except nvml.NVMLError:
        return ""


def visible_gpus(nvml: ModuleType, environment: Mapping[str, str]) -> list[object]:
    """Return NVML's handles of the GPUs in CUDA_VISIBLE_DEVICES; empty: unknown.

    CUDA numbers the fastest GPU first, NVML follows the bus: numbers tell the GPUs only where all
    are alike, or CUDA_DEVICE_ORDER is PCI_BUS_ID.

    Raises:
        NVMLError: there is no driver, or no such GPU.
    """
    listed = map(str.strip, environment.get("CUDA_VISIBLE_DEVICES", "0").split(","))
    visible = [name for name in listed if name]
    nvml.nvmlInit()
    if not all(map(str.isdigit, visible)):
        return [nvml.nvmlDeviceGetHandleByUUID(name) for name in visible]
    gpus = [*map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))]
    alike = len({str(nvml.nvmlDeviceGetName(gpu)) for gpu in gpus}) == 1
    ordered = alike or environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    known = ordered and all(int(number) < len(gpus) for number in visible)
    return [gpus[int(number)] for number in visible] if known else []
