"""Readings of the GPU's sensors through NVML, if `nvidia-ml-py` (the extra `gpu`) is installed.

Source: NVML API reference, nvmlClocksEventReasons (the bits of reasons for slow clocks).
"""

from contextlib import suppress

import torch

try:
    import pynvml
except ImportError:
    pynvml = None

# Reasons for clocks below their maximum; idleness and chosen clocks are no faults.
REASONS = {
    0x04: "power_cap",
    0x08: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "thermal_software",
    0x40: "thermal_hardware",
    0x80: "power_brake",
}


def metrics(device: torch.device) -> dict[str, float]:
    """Return the readings that NVML gives, by their metrics' names; empty on a CPU.

    `gpu/throttle` counts the reasons for slow clocks; each reason is also a metric,
    `gpu/throttle_WORD`, while it lasts.
    """
    values: dict[str, float] = {}
    if pynvml is None or device.type != "cuda":
        return values
    with suppress(pynvml.NVMLError):  # no driver, or no right to use it
        pynvml.nvmlInit()
        # Its number in CUDA and in NVML may differ.
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        sensors = {
            "gpu/temperature_c": lambda: pynvml.nvmlDeviceGetTemperature(gpu, 0),  # of the chip
            "gpu/clock_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
            "gpu/power_w": lambda: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
            "gpu/utilization": lambda: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 1e2,
        }
        for name, read in sensors.items():
            with suppress(pynvml.NVMLError):  # not every model has every sensor
                values[name] = float(read())
        bits = pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)
        reasons = [word for bit, word in REASONS.items() if bits & bit]
        values["gpu/throttle"] = float(len(reasons))
        values |= {f"gpu/throttle_{word}": 1.0 for word in reasons}
    return values
