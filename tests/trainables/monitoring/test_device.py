"""If these fail, a trial is said to have run on another model of GPU than it did, or on none."""

from types import SimpleNamespace

import pytest

from trainables.monitoring.device import cpu_model, model, visible_model


class NVMLError(Exception):
    """NVML's error."""


def machine(*names):
    """Return NVML of a machine with these GPUs, in the order of the bus."""

    def by_uuid(uuid):
        if not uuid.startswith("GPU-"):
            raise NVMLError("not found")
        return int(uuid.removeprefix("GPU-"))

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: len(names),
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetHandleByUUID=by_uuid,
        nvmlDeviceGetName=lambda handle: names[handle],
    )


@pytest.mark.parametrize(
    ("names", "environment", "expected"),
    [
        (("NVIDIA H200", "NVIDIA H200"), {"CUDA_VISIBLE_DEVICES": "1"}, "NVIDIA H200"),
        (("NVIDIA L4", "NVIDIA H200"), {"CUDA_VISIBLE_DEVICES": "GPU-1"}, "NVIDIA H200"),
        (("NVIDIA L4", "NVIDIA H200"), {"CUDA_VISIBLE_DEVICES": "0"}, ""),
        (
            ("NVIDIA L4", "NVIDIA H200"),
            {"CUDA_VISIBLE_DEVICES": "1,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
            "NVIDIA H200",
        ),
        (("NVIDIA H200",), {"CUDA_VISIBLE_DEVICES": "MIG-gone"}, ""),
        (("NVIDIA H200",), {"CUDA_VISIBLE_DEVICES": ""}, ""),
    ],
)
def test_nvml_names_the_visible_gpu_or_says_that_it_is_unknown(names, environment, expected):
    assert visible_model(machine(*names), environment) == expected


def test_a_cpu_is_named_as_linux_names_it(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor: 0\nmodel name\t: AMD EPYC 9654\nflags: fpu\n")
    assert cpu_model(tmp_path / "cpuinfo") == "AMD EPYC 9654"


@pytest.mark.gpu
def test_a_gpu_has_the_name_that_torch_knows():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    assert model(True) == torch.cuda.get_device_name(0)
