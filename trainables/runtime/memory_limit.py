"""The limit of a rank's main memory: who exceeds it is killed, and the log says why.

A limit of the address space would not do: CUDA and torch reserve far more of it than they use. What
counts is the memory that can't be taken back: anonymous and shared memory of the rank and of all
processes that it started, each shared page divided among its users. Mapped files do not count.
"""

import os
import re
import signal
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from trainables.runtime.last_words import note

PROC = Path("/proc")
LOOK_S = 0.1  # between two looks at this process
CHILDREN = 10  # looks of which one looks at the children too: finding them reads all of /proc
KIB = re.compile(r"^(RssAnon|RssShmem|Pss_Anon|Pss_Shmem):\s+(\d+) kB", re.MULTILINE)
LOW = 0.05  # share of the node's memory that is left: the kernel and Ray begin to kill


def watch_memory(limit: int | None) -> list[threading.Thread]:
    """Watch this process's memory from a thread; return it, or none where /proc is not (macOS).

    Args:
        limit: bytes of this process and its children; None: only note when the node's run out.
    """
    if not PROC.joinpath("self", "status").exists():
        return []
    thread = threading.Thread(target=_watch, args=(limit,), name="memory", daemon=True)
    thread.start()
    return [thread]


def _watch(limit: int | None) -> None:
    children: list[int] = []
    number, noted = 0, False
    while True:
        time.sleep(LOOK_S)
        if number % CHILDREN == 0:
            with suppress(psutil.Error):
                children = [child.pid for child in psutil.Process().children(recursive=True)]
        number += 1
        processes = [os.getpid(), *children]
        if limit is not None and used_bytes(processes) > limit:
            used = used_bytes(processes, exact=True)
            if used > limit:
                note(f"killed: it used {_format(used)}, and memory_per_worker is {_format(limit)}")
                _kill(children)
        memory = psutil.virtual_memory() if number % CHILDREN == 0 else None
        is_low = memory is not None and memory.available < LOW * memory.total
        if memory is not None and is_low and not noted:
            used = used_bytes(processes, exact=True)
            note(f"memory runs out: it uses {_format(used)} of the node's {_format(memory.total)}")
        noted = is_low if memory is not None else noted


def used_bytes(processes: Iterable[int], exact: bool = False) -> int:
    """Return the anonymous and shared memory of processes.

    Args:
        exact: divide a page among the processes that share it; costs up to some milliseconds for
            each gigabyte. Otherwise it counts for each of them, so the sum may be too high.
    """
    used = 0
    for process in processes:
        with suppress(OSError):  # it has ended
            text = PROC.joinpath(f"{process}", "smaps_rollup" if exact else "status").read_text()
            used += sum(1024 * int(kib) for _, kib in KIB.findall(text))
    return used


def _kill(children: Iterable[int]) -> None:
    for process in (*children, os.getpid()):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def _format(count: float) -> str:
    return f"{count / 2**30:.3g} GiB" if count >= 2**30 else f"{count / 2**20:.3g} MiB"
