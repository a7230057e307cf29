"""If these fail, a trial's MFU is against the peak of another GPU, or of another number format."""

from itertools import pairwise

import pytest

from trainables.monitoring.peaks import PEAKS, number_format, peak_of


# Names as torch.cuda.get_device_name gives them.
@pytest.mark.parametrize(
    ("name", "bf16"),
    [
        ("NVIDIA A100-SXM4-40GB", 312),
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756.5),
        ("NVIDIA H200", 989.4),
        ("NVIDIA B200", 2250),
        ("NVIDIA L4", 121),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("AMD Instinct MI300X", 1307.4),
    ],
)
def test_gpus_are_known_by_torchs_name(name, bf16):
    assert peak_of(name, "bf16") == pytest.approx(bf16 * 1e12)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",  # a seventh of one
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA H100",  # which of three?
        "NVIDIA X1000",
    ],
)
def test_of_other_gpus_no_peak_is_made_up(name):
    assert peak_of(name, "bf16") is None


@pytest.mark.parametrize(("name", "fp16"), [("Tesla V100-SXM2-16GB", 125), ("Tesla T4", 65)])
def test_gpus_without_units_for_bfloat16_have_no_peak_in_it(name, fp16):
    assert peak_of(name, "fp16") == fp16 * 1e12
    assert peak_of(name, "bf16") is None


def test_a_shorter_format_is_never_slower():
    """Each row, from fp64 to fp16; a slip of a column would break the order."""
    for name, row in PEAKS.items():
        fp64, fp32, tf32, fp16, bf16 = row
        peaks = [tflops for tflops in (fp64, fp32, tf32, fp16) if tflops is not None]
        assert all(slower <= faster for slower, faster in pairwise(peaks)), name
        assert bf16 in (None, fp16), name


@pytest.mark.parametrize(
    ("precision", "tf32", "expected"),
    [
        ("32-true", False, "fp32"),
        ("32-true", True, "tf32"),
        ("bf16-mixed", True, "bf16"),
        ("bf16-true", False, "bf16"),
        ("16-mixed", False, "fp16"),
        ("64-true", True, "fp64"),
    ],
)
def test_the_format_follows_from_the_training_options(precision, tf32, expected):
    assert number_format(precision, tf32) == expected
