"""A trainable for tests of trials that get more workers while they run."""

import time


def patient(params, worker):
    """Fail at once in the first trial; in the other, run slowly until it has two workers."""
    before = worker.restore()
    total = float((before / "total").read_text()) if before else 0.0
    if params["role"] == "fails":
        raise ValueError("this one only makes room")
    for step in worker.steps():
        if worker.world_size == 1:
            time.sleep(0.05)
        total += 1
        folder = worker.scratch()
        if worker.rank == 0:
            (folder / "total").write_text(str(total))
        metrics = {"loss": 1 / total, "total": total, "ranks": worker.world_size}
        worker.report(step, metrics, checkpoint=folder)
