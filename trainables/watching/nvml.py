"""The GPU's own instruments, through NVML, where the extra `nvidia-ml-py` is installed.

Source: NVML API reference, nvmlClocksEventReasons (the bits of what slows the clocks).
"""

import importlib
from collections.abc import Callable
from types import ModuleType

import torch

# What holds the clocks below their highest; idleness and chosen clocks are no faults.
REASONS = {
    0x04: "power_cap",
    0x08: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "thermal_software",
    0x40: "thermal_hardware",
    0x80: "power_brake",
}


def slowed_by(bits: int) -> list[str]:
    """The words for NVML's reasons why the clocks are held down."""
    return [word for bit, word in REASONS.items() if bits & bit]


def uuid(device: torch.device) -> str:
    """NVML's name for torch's device, whatever CUDA_VISIBLE_DEVICES says; empty on a CPU."""
    if device.type != "cuda":
        return ""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


class Gpu:
    """One GPU's instruments; none where there is no GPU, no NVML, or no right to ask it."""

    def __init__(self, uuid: str) -> None:
        """Opens NVML, which takes milliseconds; an empty uuid: there is no GPU."""
        self._nvml, self._handle = _opened(uuid) if uuid else (None, None)

    def metrics(self) -> dict[str, float]:
        """Readings by the names under which they are reported, without those it refuses.

        `gpu/slowed` counts the reasons that hold the clocks down; each is a metric of its own,
        `gpu/slowed_by_WORD`, as long as it lasts.
        """
        if self._nvml is None:
            return {}
        return {**_readings(self._nvml, self._handle), **_slowed(self._nvml, self._handle)}


def _readings(nvml: ModuleType, gpu: object) -> dict[str, float]:
    readings: dict[str, Callable[[], float]] = {
        "gpu/temperature_c": lambda: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
        "gpu/clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "gpu/power_w": lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
        "gpu/utilization": lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 1e2,
    }
    found: dict[str, float] = {}
    for name, read in readings.items():
        try:
            found[name] = float(read())
        except nvml.NVMLError:
            continue  # not every model has every instrument
    return found


def _slowed(nvml: ModuleType, gpu: object) -> dict[str, float]:
    try:
        words = slowed_by(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
    except nvml.NVMLError:
        return {}
    return {"gpu/slowed": float(len(words)), **{f"gpu/slowed_by_{word}": 1.0 for word in words}}


def _opened(uuid: str) -> tuple[ModuleType | None, object]:
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None, None
    try:
        nvml.nvmlInit()
        return nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError:
        return None, None
