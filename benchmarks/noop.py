"""The trial that does nothing, for ours and for the peers.

The first trial of each process waits until all slots have one: so starting the processes, which
takes seconds, is no part of a rate.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apart import MEETING

POLL_S = 0.005
_met = False


def meet(slots: int) -> None:
    """Wait until the processes of all slots are up; once a process."""
    global _met
    if _met:
        return
    folder = Path(os.environ[MEETING])
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < slots:
        time.sleep(POLL_S)
    _met = True


def loss(config: Mapping[str, Any]) -> float:
    """What the trial reports."""
    meet(config["slots"])
    return float(config["lr"])


def train(params: Mapping[str, Any], worker: Any) -> None:
    """The trial as one of our sweep's."""
    worker.report(1, {"loss": loss(params)})
