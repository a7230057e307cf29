"""Trainables for tests on real ranks that run short of memory, or of sense."""

from dataclasses import dataclass

from trainables.worker import Diverged, TooLarge


@dataclass(frozen=True)
class Fits:
    """From step 2 on a quarter of its micro-batch fits; its weight says how many steps it took."""

    lr: float
    last: int = 0  # where this is not 0, no micro-batch fits from that step on

    def train(self, worker):
        before = worker.restore()
        weight = float((before / "weight").read_text()) if before else 0.0
        for step in worker.steps():
            if step == self.last:
                raise MemoryError("one sample does not fit")
            if step > 1 and worker.shrink < 2 and worker.rank == worker.world_size - 1:
                raise TooLarge("a micro-batch did not fit") from MemoryError("8 GiB more")
            together(worker)
            weight += 1.0
            folder = worker.scratch()
            (folder / "weight").write_text(str(weight))
            metrics = {"loss": weight, "first": worker.first, "shrink": worker.shrink}
            worker.report(step, metrics, checkpoint=folder)


@dataclass(frozen=True)
class Diverges:
    """It can't go on beyond step 2; reports what it was told to do about it."""

    lr: float

    def train(self, worker):
        for step in worker.steps():
            if step == 3:
                raise Diverged(f"nan: {worker.nan} was of no use")
            together(worker)
            worker.report(step, {"loss": self.lr}, checkpoint=worker.scratch())


def function(params, worker):
    worker.report(1, {"loss": 1.0})


def together(worker):
    """A collective, which hangs or breaks where a rank is missing."""
    if worker.world_size > 1:
        import torch
        import torch.distributed as dist

        dist.all_reduce(torch.ones(1))
