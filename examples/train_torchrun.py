"""A small network on scikit-learn's digits, by torchrun; its rank 0 reports. See torchrun.yaml."""

import argparse

import torch
import torch._dynamo  # here, or DDP's constructor imports it, and its frames keep the model
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn

import hposvc

flags = argparse.ArgumentParser()
flags.add_argument("--lr", type=float, default=0.1)
flags.add_argument("--width", type=int, default=32)
flags.add_argument("--epochs", type=int, default=3)
given = flags.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
images, digits = load_digits(return_X_y=True)
x = torch.tensor(images / 16, dtype=torch.float32)[dist.get_rank() :: dist.get_world_size()]
y = torch.tensor(digits)[dist.get_rank() :: dist.get_world_size()]
net = nn.Sequential(nn.Linear(64, given.width), nn.ReLU(), nn.Linear(given.width, 10))
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=given.lr)
for _ in range(given.epochs):
    for batch in torch.randperm(len(x)).split(128):
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        hposvc.report({"loss": loss.item()})
del model  # it holds the group, whose threads would abort the interpreter's end
dist.destroy_process_group()
