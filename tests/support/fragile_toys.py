"""Trainables for tests on real ranks: out of memory, diverging, or without a model."""

from dataclasses import dataclass

from trainables.worker import Diverged, TooLarge


@dataclass(frozen=True)
class Fits:
    """From step 2 on only a quarter of a micro-batch fits; the weight counts the steps taken."""

    lr: float
    last: int = 0  # if not 0: the step from which on no micro-batch fits

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
    """Diverges after step 2; the error names the `failure.nan` that it was given."""

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
    """Run a collective, which hangs or breaks if a rank is missing."""
    if worker.world_size > 1:
        import torch
        import torch.distributed as dist

        dist.all_reduce(torch.ones(1))
