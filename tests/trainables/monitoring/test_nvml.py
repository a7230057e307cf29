"""If these fail, a trial on a machine without NVML dies, or a throttled GPU goes unseen."""

from types import SimpleNamespace

import pytest
import torch

from trainables.monitoring import nvml

GPU = torch.device("cuda", 0)


class NVMLError(Exception):
    """NVML's error."""


def refuse(*_: object) -> None:
    raise NVMLError


def install(monkeypatch, **functions):
    """Put an NVML in place whose calls are refused, except for these functions."""
    nothing = dict.fromkeys(
        ("HandleByUUID", "Temperature", "ClockInfo", "PowerUsage", "UtilizationRates"), refuse
    )
    calls = {f"nvmlDeviceGet{name}": call for name, call in nothing.items()} | functions
    fake = SimpleNamespace(NVMLError=NVMLError, NVML_CLOCK_SM=1, nvmlInit=lambda: None, **calls)
    monkeypatch.setattr(nvml, "pynvml", fake)
    known = SimpleNamespace(uuid="01")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: known)


def test_there_are_no_readings_without_a_gpu_or_nvml_or_the_right_to_use_it(monkeypatch):
    assert nvml.metrics(torch.device("cpu")) == {}
    monkeypatch.setattr(nvml, "pynvml", None)
    assert nvml.metrics(GPU) == {}
    install(monkeypatch)
    assert nvml.metrics(GPU) == {}


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [(0x04 | 0x40, ["power_cap", "thermal_hardware"]), (0x01 | 0x02 | 0x100, [])],  # idle, chosen
)
def test_what_slows_the_clocks_is_told_in_words_beside_the_sensors_there_are(
    monkeypatch, bits, reasons
):
    install(
        monkeypatch,
        nvmlDeviceGetHandleByUUID={"GPU-01": 7}.__getitem__,
        nvmlDeviceGetPowerUsage={7: 250_000}.__getitem__,
        nvmlDeviceGetCurrentClocksEventReasons=lambda gpu: bits,
    )
    assert nvml.metrics(GPU) == {
        "gpu/power_w": 250.0,
        "gpu/throttle": len(reasons),
        **{f"gpu/throttle_{word}": 1.0 for word in reasons},
    }


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_shows_its_temperature_clock_and_power():
    pytest.importorskip("pynvml")
    metrics = nvml.metrics(GPU)
    assert 10 < metrics["gpu/temperature_c"] < 110
    assert metrics["gpu/clock_mhz"] > 100
    assert metrics["gpu/power_w"] > 10
    assert 0 <= metrics["gpu/utilization"] <= 1
    assert metrics["gpu/throttle"] >= 0
