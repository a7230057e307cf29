"""A small network on scikit-learn's digits, with accelerate. See script_accelerate.yaml.

On GPUs write `Accelerator()`, and leave out the two lines marked `gloo only`.
"""

import argparse
import os
from pathlib import Path

import torch
import torch._dynamo  # gloo only: imported later, it would keep the model alive
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits

import hposvc

flags = argparse.ArgumentParser()
flags.add_argument("--lr", type=float, default=0.1)
flags.add_argument("--momentum", type=float, default=0.0)
flags.add_argument("--epochs", type=int, default=9)
given = flags.parse_args()

accelerator = Accelerator(cpu=True)
set_seed(0)
images, digits = load_digits(return_X_y=True)
rows = torch.utils.data.TensorDataset(torch.tensor(images / 16).float(), torch.tensor(digits))
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
model, optimizer, batches = accelerator.prepare(
    model,
    torch.optim.SGD(model.parameters(), lr=given.lr, momentum=given.momentum),
    torch.utils.data.DataLoader(rows, batch_size=64, shuffle=True),
)
epoch = 0
if restored := hposvc.get_checkpoint():
    accelerator.load_state(str(restored))
    epoch = int((restored / "epoch").read_text())
while epoch < given.epochs:
    losses = []
    for x, y in batches:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.detach())
    epoch += 1
    mean = accelerator.reduce(torch.stack(losses).mean(), "mean").item()
    if folder := os.environ.get("HPOSVC_CHECKPOINT_DIR"):
        accelerator.save_state(folder)
        if accelerator.is_main_process:
            Path(folder, "epoch").write_text(f"{epoch}")
        accelerator.wait_for_everyone()
    hposvc.report({"loss": mean}, step=epoch)
model, optimizer, batches = accelerator.free_memory(model, optimizer, batches)  # gloo only
accelerator.end_training()
