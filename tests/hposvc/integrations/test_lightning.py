"""Lightning's Trainer in real sweeps, by the lines of docs/how-to/frameworks.md."""

import json
from functools import partial
from pathlib import Path

import framework_sweeps
import pages
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

import hposvc

BLOCK = pages.block("how-to/frameworks.md", "LightningModule")
X = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
DATA = TensorDataset(X, X.sum(1))
UPDATES, EPOCHS = 4, 4  # of an epoch, of a trial


class Line(LightningModule):
    def __init__(self, rate, count):
        super().__init__()
        self.line = torch.nn.Linear(4, 1)
        self.rate, self.count = rate, count

    def training_step(self, batch, index):
        self.count(self.trainer.global_step)
        loss = torch.nn.functional.mse_loss(self.line(batch[0])[:, 0], batch[1])
        self.log("train/loss", loss, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self.line(batch[0])[:, 0], batch[1])
        self.log("val/loss", loss)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.rate)


def fit(rate, count=lambda update: None, validates=True, **options):
    torch.manual_seed(0)
    trainer = Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[hposvc.lightning.Report()],
        **hposvc.lightning.ranks(),
        **options,
    )
    data = [DataLoader(DATA, 8)] * (2 if validates else 1)
    trainer.fit(Line(rate, count), *data, ckpt_path=hposvc.lightning.checkpoint())
    if validates:
        trainer.validate(trainer.model, data[0])  # is no step


sweep = partial(framework_sweeps.sweep, metric="val/loss", rates=(1e-3, 0.1))


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The result of a sweep under ASHA, and the updates of its trials."""
    folder = tmp_path_factory.mktemp("lightning")
    return framework_sweeps.swept(folder, "val/loss", (1e-3, 0.1), fit, EPOCHS)


def test_trials_stop_at_rungs_and_go_on_without_repeating_an_update(swept):
    framework_sweeps.check_rungs(*swept, lambda step: range(UPDATES * step))


def test_the_values_are_those_of_a_training_without_pauses(swept, capsys):
    result, _ = swept
    trial = framework_sweeps.longest(result)
    fit(trial["rate"])  # outside a sweep: printed
    printed, names = capsys.readouterr().err, ("val/loss", "train/loss")
    framework_sweeps.check_curves(result, trial["trial"], printed, names, EPOCHS)


def test_the_checkpoint_is_one_of_lightning(swept):
    best = swept[0].best
    loaded = Line.load_from_checkpoint(best.checkpoint / "model.ckpt", rate=0.1, count=print)
    with torch.no_grad():
        loss = torch.nn.functional.mse_loss(loaded.line(X)[:, 0], X.sum(1))
    assert float(loss) == pytest.approx(best.value, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"val_check_interval": 2}, 2 * EPOCHS),
        ({"check_val_every_n_epoch": 2}, EPOCHS // 2),
        ({"num_sanity_val_steps": 0}, EPOCHS),
    ],
)
def test_a_step_is_a_validation(options, steps, tmp_path):
    result = sweep(lambda config: fit(config["rate"], **options), tmp_path)
    assert [*result.trials["state"]] == ["COMPLETED"], result.record.failures()
    assert [*result.curves["step"]] == [*range(1, steps + 1)]


def test_without_validation_a_step_is_an_epoch(tmp_path):
    result = sweep(
        lambda config: fit(config["rate"], validates=False),
        tmp_path,
        metric="train/loss",
    )
    assert [*result.curves["step"]] == [*range(1, EPOCHS + 1)]


def test_a_failed_training_goes_on_from_its_last_validation(tmp_path):
    def train(config):
        fit(config["rate"], framework_sweeps.break_once(tmp_path, 2 * UPDATES + 1))

    result = sweep(train, tmp_path / "home", failure={"user_retries": 1})
    assert [*result.trials["attempts"]] == [2]
    assert [*result.curves["step"]] == [*range(1, EPOCHS + 1)]
    updates = framework_sweeps.numbers(tmp_path)
    assert updates == [*range(2 * UPDATES + 2), *range(2 * UPDATES, EPOCHS * UPDATES)]


RANKS = """
import json
import os
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

import hposvc

X = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))


class Line(LightningModule):
    def __init__(self, rate):
        super().__init__()
        self.line, self.rate = torch.nn.Linear(4, 1), rate

    def training_step(self, batch, index):
        return torch.nn.functional.mse_loss(self.line(batch[0])[:, 0], batch[0].sum(1))

    def validation_step(self, batch, index):
        self.log("val/loss", self.training_step(batch, index), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.rate)


def train(config):
    trainer = Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, callbacks=[hposvc.lightning.Report()],
        **hposvc.lightning.ranks(),
    )
    folder = hposvc.lightning.checkpoint()
    data = DataLoader(TensorDataset(X), 4)
    trainer.fit(Line(config["rate"]), data, data, ckpt_path=folder)
    rank = os.environ.get("RANK", "0")
    said = [type(trainer.strategy).__name__, trainer.world_size, trainer.global_step]
    Path(f"rank-{rank}.json").write_text(json.dumps([*said, folder is not None]))
"""


@pytest.mark.full
@pytest.mark.ray
@pytest.mark.parametrize(("workers", "strategy"), [(1, "SingleDeviceStrategy"), (2, "DDPStrategy")])
def test_ranks_train_one_model_and_a_single_one_is_not_wrapped(
    workers, strategy, tmp_path, home_with_ray, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("ranks.py").write_text(RANKS)
    result = sweep(
        "ranks.py:train",
        home_with_ray,
        fidelity={"max": 2},
        scheduler={"type": "asha", "mode": "promote", "eta": 2},
        resources={"workers": workers},
        trials={"max": 2, "parallel": 1},
        engine="ray",
    )
    trials = result.trials
    assert "COMPLETED" in {*trials["state"]}, result.record.failures()
    assert max(trials["attempts"]) > 1  # it went on from a rung
    for rank in range(workers):
        said = json.loads(Path(f"rank-{rank}.json").read_text())
        assert said == [strategy, workers, 2 * 8 // workers, True]


@pytest.mark.full
def test_the_block_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(BLOCK, "how-to/frameworks.md", "exec"), names)
    assert names["result"].best.value > 0.3
