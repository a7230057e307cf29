"""The peak floating-point operations per second of GPUs, by name and number format.

Dense (without structured sparsity), with sums in float32, at boost clock, by matrix units where
the format has them. Sources: the vendors' data sheets (NVIDIA T4, V100, A100, A10, A30, A40, L4,
L40, L40S, H100, H200, HGX B200, GB200 NVL72; AMD MI300X) and NVIDIA's white papers on GA102
(RTX 3090, A6000), AD102 (RTX 4090, 6000 Ada) and GB202 (RTX 5090).
"""

from typing import Literal

import torch

Format = Literal["fp64", "fp32", "tf32", "fp16", "bf16"]
FORMATS: tuple[Format, ...] = ("fp64", "fp32", "tf32", "fp16", "bf16")

# Words of torch's name of a GPU: TFLOP/s by FORMATS. None: no such unit, or not in the sheet.
Row = tuple[float | None, float | None, float | None, float | None, float | None]
PEAKS: dict[str, Row] = {
    "V100 SXM2": (7.8, 15.7, None, 125, None),
    "V100 PCIE": (7, 14, None, 112, None),
    "V100S PCIE": (8.2, 16.4, None, 130, None),
    "T4": (None, 8.1, None, 65, None),
    "A100": (19.5, 19.5, 156, 312, 312),
    "A10": (None, 31.2, 62.5, 125, 125),
    "A30": (10.3, 10.3, 82, 165, 165),
    "A40": (None, 37.4, 74.8, 149.7, 149.7),
    "RTX A6000": (None, 38.7, 77.4, 154.8, 154.8),
    "RTX 3090": (None, 35.6, 35.6, 71, 71),
    "L4": (None, 30.3, 60, 121, 121),
    "L40": (None, 90.5, 90.5, 181, 181),
    "L40S": (None, 91.6, 183, 362, 362),
    "RTX 6000 ADA": (None, 91.1, 182.1, 364.2, 364.2),
    "RTX 4090": (None, 82.6, 82.6, 165.2, 165.2),
    "RTX 5090": (None, 104.8, 104.8, 209.5, 209.5),
    "H100 HBM3": (67, 67, 494.7, 989.4, 989.4),  # SXM
    "H100 PCIE": (51, 51, 378, 756.5, 756.5),
    "H100 NVL": (60, 60, 417.5, 835.5, 835.5),
    "H200": (67, 67, 494.7, 989.4, 989.4),
    "H200 NVL": (60, 60, 417.5, 835.5, 835.5),
    "GH200": (67, 67, 494.7, 989.4, 989.4),
    "B200": (37, 75, 1125, 2250, 2250),
    "GB200": (40, 80, 1250, 2500, 2500),
    "MI300X": (163.4, 163.4, 653.7, 1307.4, 1307.4),
}
# Words for a part of a GPU, or for a slower chip under nearly the same name.
OTHERS = {"MIG", "LAPTOP", "MAX", "MOBILE", "D", "TI", "SUPER"}


def peak(device: torch.device, precision: str, tf32: bool = False) -> float | None:
    """Return the peak FLOP/s of a device in a trial's formats; None if unknown, or for a CPU.

    Args:
        precision: as in the training options, such as bf16-mixed.
        tf32: whether float32 products may be rounded to TF32.
    """
    if device.type != "cuda":
        return None
    return peak_of(torch.cuda.get_device_name(device), number_format(precision, tf32))


def number_format(precision: str, tf32: bool = False) -> Format:
    """Return the format in which a trial multiplies matrices."""
    formats: dict[str, Format] = {"64": "fp64", "32": "fp32", "16": "fp16", "bf16": "bf16"}
    number = precision.partition("-")[0]
    if number not in formats:
        raise ValueError(f"precision is {precision!r}; it must begin with {', '.join(formats)}")
    return "tf32" if tf32 and number == "32" else formats[number]


def peak_of(name: str, number: Format) -> float | None:
    """Return the peak FLOP/s of a GPU, from the row that shares most words with its name."""
    words = set(name.upper().replace("-", " ").split())
    if words & OTHERS:
        return None
    fitting = [row for row in PEAKS if set(row.split()) <= words]
    if not fitting:
        return None
    tflops = PEAKS[max(fitting, key=lambda row: len(row.split()))][FORMATS.index(number)]
    return None if tflops is None else tflops * 1e12
