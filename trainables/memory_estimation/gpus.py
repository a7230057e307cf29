"""Memory sizes of GPUs, by their common names.

Sources: the total that nvidia-smi prints for each, in MiB (somewhat less than the name says for
memory with error correction), and AMD's data sheet of the MI300X.
"""

import re
from difflib import get_close_matches

MIB = 2**20
MEMORY_MIB = {
    "v100-16g": 16160,
    "v100-32g": 32510,
    "t4": 15360,
    "a10": 23028,
    "a30": 24576,
    "a40": 46068,
    "a100-40g": 40960,
    "a100-80g": 81920,
    "l4": 23034,
    "l40s": 46068,
    "a6000": 49140,
    "rtx3090": 24576,
    "rtx4090": 24564,
    "rtx5090": 32607,
    "h100": 81559,
    "h100-nvl": 95830,
    "gh200": 97871,
    "h200": 143771,
    "b200": 183359,
    "mi300x": 196592,
}
SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(G|GB|GiB)", re.ASCII)
UNITS = {"G": 10**9, "GB": 10**9, "GiB": 2**30}


def memory_of(text: str) -> int:
    """Return the bytes of a GPU's memory, from its name (`h100`) or a size (`80G`, `79GiB`).

    Raises:
        ValueError: `text` is neither a known name nor a size; the message lists the names.
    """
    if size := SIZE.fullmatch(text):
        return int(float(size[1]) * UNITS[size[2]])
    name = text.lower()
    if name in MEMORY_MIB:
        return MEMORY_MIB[name] * MIB
    matches = get_close_matches(name, MEMORY_MIB, n=1)
    hint = f" ({matches[0]}?)" if matches else ""
    raise ValueError(
        f"is {text!r}{hint}; give a size like 80G or 79GiB, or one of {', '.join(MEMORY_MIB)}"
    )
