"""The last collectives of this process, read from torch's flight recorder. Without torch."""

import json
import sys
from typing import Any

MOST = 20  # collectives to show; ranks that differ mostly differ in the last few


def last_collectives() -> str:
    """Return a line for each of the last collectives, or an empty text if nothing is recorded.

    Compared between ranks, the lines show which rank began another collective, or none.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available():
        return ""
    recorder = getattr(torch._C._distributed_c10d, "_dump_fr_trace_json", None)
    if recorder is None:  # torch before 2.13
        return ""
    entries = json.loads(recorder(includeCollectives=True, onlyActive=False)).get("entries", [])
    return "".join(_line(entry) for entry in entries[-MOST:])


def _line(entry: dict[str, Any]) -> str:
    number = entry["p2p_seq_id" if entry["is_p2p"] else "collective_seq_id"]
    state = "done" if entry["retired"] else entry["state"]
    group = entry["process_group"][1]
    return f"  {number} {entry['profiling_name']} {entry['input_sizes']} in {group}: {state}\n"
