"""A small network in shards, with torchtitan's parts: dataclasses, fully_shard, dcp.

On GPUs write `nccl` and `cuda`. See torchrun_shards.yaml.
"""

import os
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import tyro
from sklearn.datasets import load_digits
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import hposvc


@dataclass
class Optimizer:
    lr: float = 1e-2
    weight_decay: float = 0.0


@dataclass
class Job:
    optimizer: Optimizer = field(default_factory=Optimizer)
    evaluations: int = 9


job = tyro.cli(Job)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
optimizer = torch.optim.AdamW(
    model.parameters(), lr=job.optimizer.lr, weight_decay=job.optimizer.weight_decay
)
step = 0


def state():
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": torch.tensor(step)}


if restored := hposvc.get_checkpoint():
    saved = state()
    dcp.load(saved, checkpoint_id=restored)
    set_state_dict(
        model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"]
    )
    step = int(saved["step"])
images, digits = load_digits(return_X_y=True)
x, y = torch.tensor(images / 16).float(), torch.tensor(digits)
while step < 10 * job.evaluations:
    rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(step))[:128]
    mine = rows[dist.get_rank() :: dist.get_world_size()]
    loss = torch.nn.functional.cross_entropy(model(x[mine]), y[mine])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step % 10 == 0:
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        if folder := os.environ.get("HPOSVC_CHECKPOINT_DIR"):
            dcp.save(state(), checkpoint_id=folder)
        hposvc.report({"loss": mean.item()}, step=step // 10)
dist.destroy_process_group()
