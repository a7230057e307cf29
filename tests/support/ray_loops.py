"""Functions written for Ray Train, and datasets of Ray Data, as Ray's guides write them."""

import os
import signal
import tempfile
from pathlib import Path

import lightning.pytorch as pl
import ray.data
import ray.train
import ray.train.lightning
import ray.train.torch
import torch
from ray.train.huggingface.transformers import RayTrainReportCallback, prepare_trainer
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(64, 4, generator=GENERATOR)
Y = (X.sum(1) > 0).long()
SIMPLE = TensorDataset(X, Y)


def torch_loop(config):
    """Plain torch, which goes on from checkpoints; its bias counts the epochs that it has seen."""
    model = ray.train.torch.prepare_model(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), config["lr"])
    data = ray.train.torch.prepare_data_loader(DataLoader(SIMPLE, 8, shuffle=True))
    first = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder) / "state.pt")
        first = state["epoch"] + 1
        getattr(model, "module", model).load_state_dict(state["model"])
    for epoch in range(first, config["epochs"]):
        if ray.train.get_context().get_world_size() > 1:
            data.sampler.set_epoch(epoch)
        for x, y in data:
            loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if ray.train.get_context().get_world_rank() == 0:
                state = {"epoch": epoch, "model": getattr(model, "module", model).state_dict()}
                torch.save(state, Path(folder) / "state.pt")
                checkpoint = ray.train.Checkpoint.from_directory(folder)
            metrics = {"loss": loss.item(), "epoch": epoch, "lr": config["lr"]}
            ray.train.report(metrics, checkpoint=checkpoint)


class Classifier(pl.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr, self.layer = lr, torch.nn.Linear(4, 2)

    def training_step(self, batch, index):
        return cross_entropy(self.layer(batch[0]), batch[1])

    def validation_step(self, batch, index):
        self.log("loss", cross_entropy(self.layer(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.lr)


def lightning_loop(config):
    trainer = pl.Trainer(
        max_epochs=config["epochs"],
        accelerator="cpu",
        devices="auto",
        strategy=ray.train.lightning.RayDDPStrategy(),
        plugins=[ray.train.lightning.RayLightningEnvironment()],
        callbacks=[ray.train.lightning.RayTrainReportCallback()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        logger=False,
    )
    trainer = ray.train.lightning.prepare_trainer(trainer)
    path = None
    if checkpoint := ray.train.get_checkpoint():
        path = Path(checkpoint.path) / "checkpoint.ckpt"
    data = [DataLoader(SIMPLE, 8, shuffle=True), DataLoader(SIMPLE, 8)]
    trainer.fit(Classifier(config["lr"]), *data, ckpt_path=path, weights_only=False)


class Net(torch.nn.Linear):
    def forward(self, x, labels):
        logits = super().forward(x)
        return {"loss": cross_entropy(logits, labels), "logits": logits}


def transformers_loop(config):
    from transformers import Trainer, TrainingArguments

    rows = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            eval_strategy="epoch",
            save_strategy="epoch",
            num_train_epochs=config["epochs"],
            learning_rate=config["lr"],
            use_cpu=True,
            disable_tqdm=True,
            report_to="none",
        )
        trainer = Trainer(Net(4, 2), arguments, train_dataset=rows, eval_dataset=rows)
        trainer.add_callback(RayTrainReportCallback())
        trainer = prepare_trainer(trainer)
        start = None
        if checkpoint := ray.train.get_checkpoint():
            start = f"{checkpoint.path}/{RayTrainReportCallback.CHECKPOINT_NAME}"
        trainer.train(resume_from_checkpoint=start)


def rows(config):
    return ray.data.range(40).map(lambda row: {"x": float(row["id"])})


def all_rows(config):
    return rows(config).iterator()


def regression(config):
    """What Ray's regression example reads, but from here."""

    def columns(batch):
        x = batch["data"].astype("float32")
        return {"x": x, "y": x[:, :3].sum(1)}

    return ray.data.from_numpy(torch.randn(80, 100).numpy()).repartition(4).map_batches(columns)


def all_of_regression(config):
    return regression(config).iterator()


def reading_loop(config):
    """Report which rows this trial's ranks have seen, in each epoch."""
    shard, whole = map(ray.train.get_dataset_shard, ("train", "whole"))
    checkpoint = ray.train.get_checkpoint()
    first = 0 if checkpoint is None else int((Path(checkpoint.path) / "epoch").read_text()) + 1
    for epoch in range(first, config["epochs"]):
        seen = [float(x) for batch in shard.iter_torch_batches(batch_size=5) for x in batch["x"]]
        total = torch.tensor([len(seen), sum(seen)])
        torch.distributed.all_reduce(total)
        count = sum(len(batch["x"]) for batch in whole.iter_torch_batches(batch_size=50))
        metrics = {"loss": config["lr"], "rows": total[0].item(), "sum": total[1].item()}
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(f"{epoch}")
            checkpoint = ray.train.Checkpoint(folder)
            ray.train.report({**metrics, "whole": count, "own": len(seen)}, checkpoint=checkpoint)


def dying_loop(config):
    """The torch loop, of which each trial's last rank is killed once, before its third epoch."""
    report, context = ray.train.report, ray.train.get_context()
    mark = Path(context.get_storage().storage_fs_path).parents[2] / f"{context.get_trial_id()}.died"

    def report_or_die(metrics, checkpoint=None):
        if metrics["epoch"] == 2 and context.get_world_rank() == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        report(metrics, checkpoint=checkpoint)

    ray.train.report = report_or_die
    try:
        torch_loop(config)
    finally:
        ray.train.report = report
