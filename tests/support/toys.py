"""Trainables for tests on real ranks; each misbehaves in a single way, or not at all."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from trainables.worker import DataSet, Diverged, TooLarge

SAMPLES = DataSet("sums", "training", 5, "0a1b", "s3://bucket/sums")


def steady(params, worker):
    """Report and checkpoint each step, with the process id as a metric."""
    before = worker.restore()
    total = float((before / "total").read_text()) if before else 0.0
    for step in worker.steps():
        total += params["lr"]
        folder = worker.scratch()
        (folder / "total").write_text(str(total))
        worker.report(step, {"loss": total, "pid": os.getpid()}, checkpoint=folder)


def slow(params, worker):
    """Take a tenth of a second per step."""
    for step in worker.steps():
        time.sleep(0.1)
        worker.report(step, {"loss": 1.0, "pid": os.getpid()}, checkpoint=worker.scratch())


def waits_at_a_gate(params, worker):
    """Train once the file exists."""
    while not Path(params["gate"]).exists():
        time.sleep(0.05)
    for step in worker.steps():
        worker.report(step, {"loss": 1.0})


def ddp(params, worker):
    """Train with real data-parallel steps on every rank."""
    import torch
    import torch.distributed as dist

    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=params["lr"])
    for step in worker.steps():
        loss = model(torch.full((8, 4), float(worker.rank))).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ranks = torch.ones(1)
        dist.all_reduce(ranks)
        worker.report(step, {"loss": loss.item(), "ranks": ranks.item()})


def one_rank_raises(params, worker):
    """Fail on rank 1 at step 2, while rank 0 waits for it in a collective."""
    import torch
    import torch.distributed as dist

    for step in worker.steps():
        if step == 2 and worker.rank == 1 and params["bad"]:
            raise ValueError("the batch of rank 1 is empty")
        dist.all_reduce(torch.ones(1))
        worker.report(step, {"loss": 1.0, "pid": os.getpid()})


def dies_once(params, worker):
    """Kill a rank (params['victim']) at step 2 of the first attempt."""
    import torch
    import torch.distributed as dist

    mark = Path(params["mark"])
    before = worker.restore()
    begun = int((before / "step").read_text()) if before else 0
    for step in worker.steps():
        assert step > begun
        if step == 2 and worker.rank == params["victim"] and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(1))
        folder = worker.scratch()
        (folder / "step").write_text(str(step))
        worker.report(step, {"loss": 1.0, "first": worker.first}, checkpoint=folder)


def asks_a_program(params, worker):
    """Report the exit codes of a failing program and of a grandchild process."""
    code = subprocess.run(["false"], check=False).returncode
    inner = "import subprocess as s; raise SystemExit(s.run(['sh', '-c', 'exit 3']).returncode)"
    other = subprocess.run([sys.executable, "-c", inner], check=False).returncode
    worker.report(1, {"loss": 1.0, "code": code, "other": other})


def abandons_and_dies(params, worker):
    """Start a daemon and die at once, in the first attempt."""
    mark = Path(params["mark"])
    if not mark.exists():
        start = f"setsid sleep 600 >/dev/null 2>&1 & echo $! > {mark}"
        subprocess.run(["sh", "-c", start], check=True)
        os.kill(os.getpid(), signal.SIGKILL)
    worker.report(1, {"loss": 1.0})


def leaks(params, worker):
    """Change torch's default dtype, and report whether it was changed before."""
    import torch

    was_changed = torch.get_default_dtype() == torch.float64
    torch.set_default_dtype(torch.float64)
    worker.report(1, {"loss": float(was_changed), "pid": os.getpid()})


def obedient(params, worker):
    """Add lr at each step, from the checkpoint on; at step params['at'] do params['do'].

    With params['halves'] also keep a checkpoint in the middle of each step; with
    params['describes'] declare a data set.
    """
    before = worker.restore()
    total = float((before / "total").read_text()) if before else 0.0
    if worker.within:
        total -= params["lr"] / 2
    if params.get("describes"):
        worker.uses(SAMPLES)
    for step in worker.steps():
        if params.get("halves"):
            folder = worker.scratch()
            (folder / "total").write_text(str(total + params["lr"] / 2))
            worker.keep(step - 1, folder, within=1)
        if step == params.get("at") and worker.rank == params.get("rank", 0):
            misbehave(params["do"])
        time.sleep(params.get("pause", 0.0))
        if worker.world_size > 1:
            import torch
            import torch.distributed as dist

            dist.all_reduce(torch.ones(1))
        total += params["lr"]
        folder = worker.scratch()
        (folder / "total").write_text(str(total))
        worker.report(step, {"loss": total, "pid": os.getpid()}, checkpoint=folder)


def misbehave(how):
    if how == "raise":
        raise ValueError("as ordered")
    if how == "fill":
        raise MemoryError
    if how == "overfill":
        raise TooLarge("half of it may fit") from MemoryError()
    if how == "diverge":
        raise Diverged("as ordered")
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "leave":
        os.kill(os.getpid(), signal.SIGTERM)
        return
    while True:  # hang
        time.sleep(0.1)


def obedient_curve(params, step):
    """Act like `obedient` in a simulation, without checkpoints."""
    if step == params.get("at"):
        misbehave(params["do"])
    return {"loss": params["lr"] * step}, 1.0
