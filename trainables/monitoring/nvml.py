"""Readings of the GPU's sensors through NVML, if the extra `nvidia-ml-py` is installed.

Source: NVML API reference, nvmlClocksEventReasons (the bits of reasons for slow clocks).
"""

import importlib
from collections.abc import Callable
from types import ModuleType

import torch

# Reasons for clocks below their maximum; idleness and chosen clocks are no faults.
REASONS = {
    0x04: "power_cap",
    0x08: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "thermal_software",
    0x40: "thermal_hardware",
    0x80: "power_brake",
}


def throttle_reasons(bits: int) -> list[str]:
    """Return the words for the bits of NVML's reasons for slow clocks."""
    return [word for bit, word in REASONS.items() if bits & bit]


def uuid(device: torch.device) -> str:
    """Return NVML's name for torch's device, whatever CUDA_VISIBLE_DEVICES is; empty on a CPU."""
    if device.type != "cuda":
        return ""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


class Gpu:
    """The sensors of a GPU; no readings without a GPU, NVML, or the right to use it."""

    def __init__(self, uuid: str) -> None:
        """Open NVML, which takes milliseconds, unless the uuid is empty: there is no GPU."""
        self._nvml, self._handle = _open_nvml(uuid) if uuid else (None, None)

    def metrics(self) -> dict[str, float]:
        """Return the readings by the names under which they are reported, without refused ones.

        `gpu/throttle` counts the reasons for slow clocks; each reason is also a metric,
        `gpu/throttle_WORD`, while it lasts.
        """
        if self._nvml is None:
            return {}
        return {
            **_readings(self._nvml, self._handle),
            **_slow_clock_metrics(self._nvml, self._handle),
        }


def _readings(nvml: ModuleType, gpu: object) -> dict[str, float]:
    readings: dict[str, Callable[[], float]] = {
        "gpu/temperature_c": lambda: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
        "gpu/clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "gpu/power_w": lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
        "gpu/utilization": lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 1e2,
    }
    values: dict[str, float] = {}
    for name, read in readings.items():
        try:
            values[name] = float(read())
        except nvml.NVMLError:
            continue  # not every model has every sensor
    return values


def _slow_clock_metrics(nvml: ModuleType, gpu: object) -> dict[str, float]:
    try:
        words = throttle_reasons(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
    except nvml.NVMLError:
        return {}
    return {"gpu/throttle": float(len(words)), **{f"gpu/throttle_{word}": 1.0 for word in words}}


def _open_nvml(uuid: str) -> tuple[ModuleType | None, object]:
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None, None
    try:
        nvml.nvmlInit()
        return nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError:
        return None, None
