"""Trainables for tests on real ranks: out of memory."""

from dataclasses import dataclass

from trainables.worker import TooLarge


@dataclass(frozen=True)
class Fits:
    """From step 2 on only a quarter of a micro-batch fits; the weight counts the steps taken."""

    lr: float

    def train(self, worker):
        before = worker.restore()
        weight = float((before / "weight").read_text()) if before else 0.0
        for step in worker.steps():
            if step > 1 and worker.shrink < 2 and worker.rank == worker.world_size - 1:
                raise TooLarge("a micro-batch did not fit") from MemoryError("8 GiB more")
            together(worker)
            weight += 1.0
            folder = worker.scratch()
            (folder / "weight").write_text(str(weight))
            metrics = {"loss": weight, "first": worker.first, "shrink": worker.shrink}
            worker.report(step, metrics, checkpoint=folder)


def together(worker):
    """Run a collective, which hangs or breaks if a rank is missing."""
    if worker.world_size > 1:
        import torch
        import torch.distributed as dist

        dist.all_reduce(torch.ones(1))
