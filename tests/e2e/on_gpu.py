"""Trainables for tests/e2e/test_gpu.py: each does one thing to the GPU that it was given."""

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from trainables.zoo.digits import DigitsCNN

GIB = 2**30
HELD_GIB = 8  # what a trial takes of the GPU: more than everything else on it together
MEETING_S = 120.0  # for two trials to be there at once
KEPT = []  # outlives an order


def hold(worker, gib=HELD_GIB):
    """So much of the GPU's memory, written to."""
    return torch.ones(gib * GIB, dtype=torch.uint8, device=worker.device)


def free_gib():
    return torch.cuda.mem_get_info()[0] / GIB


@dataclass(frozen=True)
class Watched(DigitsCNN):
    """Digits; reports how it was evaluated."""

    def evaluate(self, model, batch):
        images, labels_B = batch
        one_B = torch.ones_like(labels_B)
        return {
            **super().evaluate(model, batch),
            "on_gpu": one_B * images.is_cuda,
            "bfloat16": one_B * (model(images).dtype == torch.bfloat16),
            "devices": one_B * torch.cuda.device_count(),
        }


def over_nccl(params, worker):
    """DDP as people write it; with a single rank the process group is made by the function."""
    import torch.distributed as dist

    backend = params["backend"]
    dist.init_process_group(backend)  # torchrun's variables say where
    torch.manual_seed(0)
    device = worker.device
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=params["lr"])
    x_BF = torch.randn(256, 64, device=device)
    y_B = x_BF.sum(dim=1)
    for step in worker.steps():
        with torch.autocast(device.type, dtype=torch.bfloat16):
            output_B = model(x_BF).squeeze(1)
        loss = (output_B.float() - y_B).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen = {
            "devices": torch.cuda.device_count(),
            "nccl": dist.get_backend() == "nccl",
            "bfloat16": output_B.dtype == torch.bfloat16,
            "bf16_asked": worker.training.precision == "bf16-mixed",
        }
        metrics = {"loss": loss.item(), "pid": os.getpid()}
        worker.report(step, metrics | {name: int(value) for name, value in seen.items()})
    dist.destroy_process_group()


def meets(params, worker):
    """Waits on the GPU for the other trial, so that both are there at the same time."""
    held = hold(worker, 1)
    folder = Path(params["folder"])
    account = {
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "devices": torch.cuda.device_count(),
        "gpu": str(torch.cuda.get_device_properties(0).uuid),
        "begin": time.time(),
    }
    (folder / f"{worker.trial}.here").touch()
    deadline = time.monotonic() + MEETING_S
    while len(list(folder.glob("*.here"))) < 2:
        assert time.monotonic() < deadline, "the other trial never came"
        time.sleep(0.02)
    assert int(held.sum()) == GIB
    account["end"] = time.time()
    (folder / f"{worker.trial}.json").write_text(json.dumps(account))
    worker.report(1, {"loss": params["x"]})


def sees(params, worker):
    """Says what was free when it came, takes its share, and gives it back."""
    free = free_gib()
    held = hold(worker)
    for step in worker.steps():
        loss = params["x"] + float(held[step] - 1)
        worker.report(step, {"loss": loss, "free_gib": free, "pid": os.getpid()})


def leaks(params, worker):
    """The same, but it keeps its share."""
    free = free_gib()
    KEPT.append(hold(worker))
    for step in worker.steps():
        worker.report(step, {"loss": params["x"], "free_gib": free, "pid": os.getpid()})


def takes(params, worker):
    """Takes GiB after GiB, up to params["gib"]."""
    free = free_gib()
    held = []
    for _ in range(params["gib"]):
        held.append(hold(worker, 1))  # noqa: PERF401 - it breaks off within the list
    worker.report(1, {"loss": float(len(held)), "free_gib": free, "pid": os.getpid()})


def dies_once(params, worker):
    """Counts in a tensor of the GPU; is killed in its second step, while the GPU works on it."""
    free = free_gib()
    mark = Path(params["mark"])
    held = hold(worker)
    before = worker.restore()
    count = torch.zeros(1, device=worker.device)
    if before is not None:
        count = torch.load(before / "count.pt", map_location=worker.device)
    matrix = torch.ones(8192, 8192, device=worker.device) / 8192
    for step in worker.steps():
        if step == 2 and not mark.exists():
            for _ in range(200):
                matrix = matrix @ matrix
            mark.write_text(json.dumps({"free_gib": free, "pid": os.getpid()}))
            os.kill(os.getpid(), signal.SIGKILL)
        count += held[:1]
        folder = worker.scratch()
        torch.save(count, folder / "count.pt")
        metrics = {"loss": count.item(), "first": worker.first, "free_gib": free}
        worker.report(step, {**metrics, "pid": os.getpid()}, checkpoint=folder)
