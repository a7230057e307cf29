"""Trainables that are killed, or wait to be; without torch, so that they start at once."""

import os
import signal
from pathlib import Path


def steady(params, worker):
    """Counts on from its checkpoint; reports and checkpoints each step."""
    before = worker.restore()
    count = int((before / "count").read_text()) if before else 0
    for step in worker.steps():
        count += 1
        assert count == step, "what a checkpoint holds is what was reported with it"
        folder = worker.scratch()
        (folder / "count").write_text(str(count))
        loss = (params["lr"] - 0.01) ** 2 / step
        worker.report(step, {"loss": loss, "pid": os.getpid()}, checkpoint=folder)


def dies_at_rename(params, worker):
    """As `steady`, but its second checkpoint's rename, for once, is the last that the rank does.

    params: `moment` (before or after the rename), `mark` (a file that says that it was done).
    """
    mark, rename = Path(params["mark"]), Path.rename
    calls = []

    def fatal(path, target):
        calls.append(path)
        if len(calls) == 2 and not mark.exists():
            mark.touch()
            if params["moment"] == "after":
                rename(path, target)
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(path, target)

    Path.rename = fatal
    try:
        steady(params, worker)
    finally:
        Path.rename = rename


def gated(params, worker):
    """As `steady`, but waits at step 3 until the file `gate` is there."""
    import time

    before = worker.restore()
    for step in worker.steps():
        while step == 3 and not Path(params["gate"]).exists():
            time.sleep(0.01)
        folder = worker.scratch()
        (folder / "count").write_text(f"{step} {before}")
        worker.report(step, {"loss": params["lr"] / step, "pid": os.getpid()}, checkpoint=folder)
