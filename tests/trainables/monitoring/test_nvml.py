"""If these fail, a trial on a machine without NVML dies, or a throttled GPU goes unseen."""

import pytest
import torch

from trainables.monitoring.nvml import Gpu, throttle_reasons, uuid


def test_a_cpu_has_no_instruments():
    assert uuid(torch.device("cpu")) == ""
    assert Gpu("").metrics() == {}


def test_a_gpu_that_cannot_be_asked_shows_nothing():
    """No NVML library, no driver, or no such GPU."""
    assert Gpu("GPU-00000000-0000-0000-0000-000000000000").metrics() == {}


def test_what_slows_the_clocks_is_told_in_words():
    assert throttle_reasons(0x04 | 0x40) == ["power_cap", "thermal_hardware"]


def test_idle_and_chosen_clocks_are_no_faults():
    assert throttle_reasons(0x01 | 0x02 | 0x100) == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_shows_its_temperature_clock_and_power():
    pytest.importorskip("pynvml")
    metrics = Gpu(uuid(torch.device("cuda", 0))).metrics()
    assert 10 < metrics["gpu/temperature_c"] < 110
    assert metrics["gpu/clock_mhz"] > 100
    assert metrics["gpu/power_w"] > 10
    assert 0 <= metrics["gpu/utilization"] <= 1
    assert metrics["gpu/throttle"] >= 0
