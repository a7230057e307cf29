"""A trainable for the tests here; nodes of a cluster import it."""

import time
from contextlib import suppress
from pathlib import Path


def waits_for_a_file(params, worker):
    """The first trial to come passes, the others wait until the file is there."""
    go = Path(params["file"])
    for step in worker.steps():
        with suppress(FileExistsError):
            go.with_suffix(".first").touch(exist_ok=False)
            worker.report(step, {"loss": 3.0})
            continue
        while not go.exists():
            time.sleep(0.05)
        worker.report(step, {"loss": 4.0})
