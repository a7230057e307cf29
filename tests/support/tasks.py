"""Small tasks shared by tests of the training runtime, and functions that return their reports.

Axes: N samples, B samples of a batch, T tokens of a sample, H heads, F features.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from trainables import Training, Worker
from trainables.data import Batch, Data, Tensors
from trainables.task import Task
from trainables.worker import LocalLink


@dataclass(frozen=True)
class Deep(Task):
    """A sequence of layers on tokens; samples have 1 to 5 tokens, batches 5, 5, 5, 5, 3 samples."""

    lr: float = 0.02
    batch: int = 5
    dropout: float = 0.0

    def build_model(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(3, 8),
            nn.Tanh(),
            nn.Dropout(self.dropout),
            nn.Linear(8, 8),
            nn.LayerNorm(8),
            nn.Linear(8, 12),
            nn.GELU(),
            nn.Linear(12, 1),
        )

    def load_data(self) -> Data:
        generator = torch.Generator().manual_seed(1)
        x_NTF = torch.randn(30, 5, 3, generator=generator, dtype=torch.float64)
        y_NT = x_NTF.sum(dim=2)
        counts_NT = torch.arange(5) <= (torch.arange(30) * 7 % 5)[:, None]
        columns = (x_NTF, y_NT, counts_NT)
        return Data(Tensors(*(c[:23] for c in columns)), Tensors(*(c[23:] for c in columns)))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x_BTF, y_BT, counts_BT = batch
        return (model(x_BTF).squeeze(2) - y_BT)[counts_BT].square()

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.lr, momentum=0.9)


@dataclass(frozen=True)
class Normed(Deep):
    """Deep with batch norm, whose running statistics are evaluated."""

    def build_model(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 8), nn.BatchNorm1d(5), nn.Linear(8, 1)
        )


@dataclass(frozen=True)
class Forgetful(Deep):
    """Deep with an optimizer of three state tensors per weight, and random numbers."""

    lr: float = 0.01
    dropout: float = 0.2

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=self.lr)


class Attention(nn.Module):
    """Self-attention over two heads, with a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)

    def forward(self, x_BTF: Tensor) -> Tensor:
        normed = self.norm(x_BTF)
        heads = [
            layer(normed).unflatten(2, (-1, 4)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        found_BHTF = scaled_dot_product_attention(*heads)
        return x_BTF + self.output(found_BHTF.transpose(1, 2).flatten(2))


class Decoding(nn.Module):
    """Attention blocks in a list; embedding, buffers, norm and a tied head are the root's own."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Embedding(31, 8)
        self.blocks = nn.ModuleList(Attention(8) for _ in range(2))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 31, bias=False)
        self.head.weight = self.lift.weight
        self.register_buffer("position_TF", torch.linspace(-1, 1, 40).view(5, 8))

    def forward(self, token_BT: Tensor) -> Tensor:
        x_BTF = self.lift(token_BT) + self.position_TF
        for block in self.blocks:
            x_BTF = block(x_BTF)
        return self.head(self.norm(x_BTF))


@dataclass(frozen=True)
class Decoded(Deep):
    """The next of 31 tokens, by a model as language models are built."""

    def build_model(self) -> nn.Module:
        return Decoding()

    def load_data(self) -> Data:
        generator = torch.Generator().manual_seed(1)
        token_NT = torch.randint(0, 31, (30, 6), generator=generator)
        counts_NT = torch.arange(5) <= (torch.arange(30) * 7 % 5)[:, None]
        columns = (token_NT[:, :-1], token_NT[:, 1:], counts_NT)
        return Data(Tensors(*(c[:23] for c in columns)), Tensors(*(c[23:] for c in columns)))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        token_BT, next_BT, counts_BT = batch
        return cross_entropy(model(token_BT)[counts_BT], next_BT[counts_BT], reduction="none")


class Heads(nn.Module):
    """A model with two heads; the first number of a batch's first sample says which ones count.

    Args:
        way: "one" calls the head that counts; "more" calls the other one too, where it counts;
            "unused" calls both, and uses one.
    """

    def __init__(self, way: str, evaluated: bool) -> None:
        super().__init__()
        self.lift, self.heads = nn.Linear(3, 8), nn.ModuleList(nn.Linear(8, 1) for _ in range(2))
        self.way, self.evaluated = way, evaluated

    def forward(self, x_BTF: Tensor) -> Tensor:
        chosen = int(self.training is not self.evaluated and x_BTF[0, 0, 0] > 0.0)
        called = {"one": [chosen], "more": range(chosen + 1), "unused": range(2)}[self.way]
        lifted = self.lift(x_BTF)
        outputs = {head: self.heads[head](lifted) for head in called}
        return sum(outputs.values()) if self.way == "more" else outputs[chosen]


@dataclass(frozen=True)
class Headed(Deep):
    """A task whose heads are chosen while it is trained, or while it is evaluated."""

    way: str = "one"
    evaluated: bool = False

    def build_model(self) -> nn.Module:
        return Heads(self.way, self.evaluated)


@dataclass(frozen=True)
class Generating(Deep):
    """A task that shows texts of a length of each rank's own."""

    def show(self, model: nn.Module) -> str:
        for _ in range(1 + torch.distributed.get_rank()):
            model(torch.zeros(1, 5, 3, dtype=next(model.parameters()).dtype))
        return ""


@dataclass(frozen=True)
class Penalized(Deep):
    """A task that learns from the gradients of its model, or from samples that they change."""

    adversarial: bool = False

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x_BTF, y_BT, counts_BT = batch
        x_BTF = x_BTF.clone().requires_grad_()
        with torch.enable_grad():
            output = model(x_BTF).square().sum()
            (slope_BTF,) = torch.autograd.grad(output, x_BTF, create_graph=not self.adversarial)
        if self.adversarial:
            return super().compute_losses(model, (x_BTF + 0.1 * slope_BTF.sign(), y_BT, counts_BT))
        return super().compute_losses(model, batch) + slope_BTF.square().sum(dim=2)[counts_BT]


def learned(task: Task, training: Training, until: int = 3) -> list[dict[str, float]]:
    """Return the reports of a single rank, under the options that are not about ranks."""
    worker = Worker.alone(until=until, training=alone(training))
    task.train(worker)
    return curve(worker)


def alone(training: Training) -> Training:
    """Return the options without those about ranks."""
    about_ranks = (
        "shard_ranks",
        "tensor_parallel",
        "pipeline_schedule",
        "reshard_after_forward",
        "cpu_offload",
        "zero_stage",
    )
    about_ranks += ("sync_every",)
    defaults = {name: getattr(Training(), name) for name in about_ranks}
    return replace(training, strategy="single", **defaults)


class Counted(nn.Module):
    """A layer with dropout that counts its forward passes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.5))
        self.times = 0

    def forward(self, x: Tensor) -> Tensor:
        self.times += 1
        return self.layers(x)


def deep() -> nn.Sequential:
    """Return four such layers, always of the same weights."""
    torch.manual_seed(0)
    return nn.Sequential(*(Counted() for _ in range(4)))


def losses(reports: Sequence[Mapping[str, float]]) -> list[float]:
    """Return the losses of reports, of training and of validation by turns."""
    return [report[name] for report in reports for name in ("train/loss", "val/loss")]


def curves(
    rank: int, task: Task, trainings: Sequence[Training], ranks: int, until: int = 3
) -> list[list[dict[str, float]]]:
    """Return the reports of one of several ranks, under each of the options."""
    reports = []
    for training in trainings:
        alone = Worker.alone(until=until, training=training)
        worker = replace(alone, rank=rank, world_size=ranks)
        task.train(worker)
        reports.append(curve(worker))
    return reports


def runs_of(
    rank: int, runs: Sequence[tuple[Task, Training]], ranks: int
) -> list[list[dict[str, float]]]:
    """Return the reports of one of several ranks, of each task under its options."""
    return [curves(rank, task, [training], ranks)[0] for task, training in runs]


def refusals(rank: int, runs: Sequence[tuple[Task, Training]], kind: type[Exception]) -> list[str]:
    """Return the errors of this kind in which each training ends, on one of two ranks."""
    messages = []
    for run in runs:
        with pytest.raises(kind) as caught:
            runs_of(rank, [run], 2)
        messages.append(f"{caught.value}")
    return messages


def resumed(
    rank: int, task: Task, trainings: Sequence[Training], ranks: int, folder: Path
) -> list[list[list[dict[str, float]]]]:
    """Return the reports of one of several ranks: four steps in one order, and in two orders."""
    results = []
    for number, training in enumerate(trainings):
        lone_worker = Worker.alone(until=2, folder=folder / f"{number}", training=training)
        worker = replace(lone_worker, rank=rank, world_size=ranks, total=4)
        uninterrupted = replace(worker, until=4, trial="whole", link=LocalLink())
        task.train(uninterrupted)
        task.train(worker)
        start = shared(worker.reports[-1].checkpoint)
        task.train(replace(worker, order=2, first=3, until=4, start=start))
        results.append([curve(uninterrupted), curve(worker)])
    return results


def shared(value: Any, ranks: int = 2) -> Any:
    """Return rank 0's value."""
    box = [value]
    if ranks > 1:
        torch.distributed.broadcast_object_list(box, src=0)
    return box[0]


def curve(worker: Worker) -> list[dict[str, float]]:
    """Return the metrics of each reported step, except those of speed."""
    return [
        {name: value for name, value in report.metrics.items() if not name.startswith("perf/")}
        for report in worker.reports
    ]
