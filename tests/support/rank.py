"""The program of a process in a test's process group; see conftest.py."""

import os
import pickle
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


def live(rank: int, ranks: int, folder: Path, path: Sequence[str]) -> None:
    """Join the group, call the function stored in the folder, and write its result there."""
    sys.path[:] = path
    os.environ["DS_ACCELERATOR"] = "cpu"  # where gloo is, also on machines with GPUs
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=60)
    )
    function, arguments = pickle.loads((folder / "call").read_bytes())
    (folder / f"result{rank}").write_bytes(pickle.dumps(function(rank, *arguments)))
    dist.destroy_process_group()
    sys.stdout.flush()
    # As ranks of ours leave, at once: gloo's threads can abort an interpreter that is being taken
    # down ("terminate called without an active exception"), after all work is done.
    os._exit(0)
