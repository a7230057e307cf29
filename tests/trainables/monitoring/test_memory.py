"""If these fail, people choose a batch by a memory figure that is not true."""

import pytest
import torch

from trainables.monitoring.memory import Memory, measure, reset_peak

MB = 10**6
CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[
                pytest.mark.gpu,
                pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
            ],
        ),
    ],
)
def test_the_peak_remembers_what_has_been_freed_until_it_is_reset(device):
    device = torch.device(device)
    reset_peak(device)
    before = measure(device)
    held = torch.ones(100 * MB, device=device)
    during = measure(device)
    del held
    after = measure(device)
    reset_peak(device)
    anew = measure(device)
    assert during.now - before.now > 380 * MB
    assert after.now - before.now < 200 * MB
    assert after.peak - before.now > 380 * MB
    assert anew.peak - before.now < 200 * MB


def test_memory_is_reported_in_gigabytes_and_only_what_is_known():
    assert Memory(now=2 * 10**9, peak=None, reserved=None).metrics == {"perf/memory_gb": 2.0}
    assert set(measure(CPU).metrics) == {"perf/memory_gb", "perf/memory_peak_gb"}
