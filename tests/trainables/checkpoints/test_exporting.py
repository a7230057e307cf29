from dataclasses import dataclass
from pathlib import Path

import pytest
import schedulefree
import torch
from tasks import Forgetful
from torch import nn
from torch.nn.functional import cross_entropy

from trainables import Data, Task, Tensors, Training, Worker
from trainables.checkpoints.exporting import export
from trainables.checkpoints.loading import load_weights
from trainables.storage import checkpoint


def test_a_changed_checkpoint_is_not_exported(tmp_path):
    worker = Worker.alone(folder=tmp_path)
    Forgetful().train(worker)
    folder = Path(worker.saved.path)
    (folder / "training.pt").write_bytes((folder / "training.pt").read_bytes()[:-1] + b"?")
    with pytest.raises(checkpoint.CheckpointDamaged):
        export(folder, tmp_path / "model.pt")


@dataclass(frozen=True)
class Blobs(Task):
    """Two clouds of points and a network, whose batch norm has statistics that are averaged too."""

    schedule_free: bool = False
    batch: int = 16
    lr: float = 0.05

    def build_model(self):
        norm = nn.Identity() if self.schedule_free else nn.BatchNorm1d(8)
        return nn.Sequential(nn.Linear(4, 8), norm, nn.ReLU(), nn.Linear(8, 2))

    def load_data(self):
        y = torch.arange(160) % 2
        x = torch.randn(160, 4, generator=torch.Generator().manual_seed(0)) + y[:, None]
        return Data(Tensors(x[:128], y[:128]), Tensors(x[128:], y[128:]))

    def build_optimizer(self, model):
        if self.schedule_free:
            return schedulefree.AdamWScheduleFree(model.parameters(), lr=self.lr)
        return torch.optim.AdamW(model.parameters(), lr=self.lr)

    def compute_losses(self, model, batch):
        return cross_entropy(model(batch[0]), batch[1], reduction="none")


@pytest.mark.parametrize(
    ("task", "training"),
    [
        (Blobs(), Training(ema=0.9, schedule="constant")),
        (Blobs(schedule_free=True), Training(schedule="constant")),
        (Blobs(), Training(schedule="constant")),
    ],
    ids=["averaged", "schedule-free", "plain"],
)
def test_the_exported_weights_are_those_that_were_evaluated(tmp_path, task, training):
    worker = Worker.alone(until=3, folder=tmp_path / "checkpoints", training=training)
    task.train(worker)
    folder, metrics = Path(worker.saved.path), worker.reports[-1].metrics

    def loss(state_dict):
        model = task.build_model()
        model.load_state_dict(state_dict)
        validation = task.load_data().validation
        batch = validation.batch(torch.arange(len(validation)))
        return task.compute_losses(model.eval(), batch).mean().item()

    exported = torch.load(export(folder, tmp_path / "model.pt"))
    assert loss(exported) == pytest.approx(metrics["val/loss"], rel=1e-6)
    loaded = load_weights(task.build_model(), folder).state_dict()
    assert loss(loaded) == loss(exported)
    trained = torch.load(export(folder, tmp_path / "trained.pt", trained=True))
    keeps_averages = task.schedule_free or training.ema is not None
    assert (loss(trained) != loss(exported)) == keeps_averages
