"""The best learning rate by width, with and without `scale_from`, and what a small search saves.

An MLP on scikit-learn's digits is trained at several widths and learning rates, with other seeds
each time, once as torch has it and once with the smallest width as its base. `hposvc transfer`'s
judgement of both is printed. Then all rates are tried at the smallest width, the best is trained at
the largest, and its loss and core-seconds stand beside those of a search at the largest width.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hposvc.analysis.rate_transfer import RateTransfer, SizeTrials, judge_transfer
from hposvc.estimate import INTERVAL
from trainables import Training, Worker
from trainables.data import Batch, Data
from trainables.task import Task
from trainables.worker import Diverged
from trainables.zoo.digits import CLASSES, digits

WIDTHS = (64, 128, 256, 512)
RATES = tuple(2.0 ** (half / 2) for half in range(-19, -7))
SEEDS = 5
EPOCHS = 5
TRAINING = Training(optimizer="adamw", schedule="cosine")
METRIC = "train/loss"  # the mean of the last epoch; on 360 validation samples noise is larger


@dataclass(frozen=True)
class DigitsMLP(Task):
    """Four hidden layers on the pixels of a digit."""

    width: int = 64
    base: int = 0  # the width for which lr is given; 0: this one's

    def build_model(self) -> nn.Module:
        sizes = [64, *[self.width] * 4]
        hidden = [
            layer
            for at, size in enumerate(sizes[1:])
            for layer in (nn.Linear(sizes[at], size), nn.ReLU())
        ]
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(self.width, CLASSES))

    def scale_from(self) -> "DigitsMLP | None":
        return replace(self, width=self.base) if self.base else None

    def load_data(self) -> Data:
        return digits()

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels_B = batch
        return cross_entropy(model(images), labels_B, reduction="none")


@dataclass(frozen=True)
class Trained:
    """A training's loss, infinite if it diverged, and its seconds."""

    loss: float
    seconds: float


def train(width: int, rate: float, base: int, seed: int) -> Trained:
    """Train one configuration on one core."""
    worker = replace(Worker.alone(until=EPOCHS, training=TRAINING), seed=seed)
    began = time.process_time()
    try:
        DigitsMLP(lr=rate, width=width, base=base).train(worker)
    except Diverged:
        return Trained(math.inf, time.process_time() - began)
    loss = next(r.metrics[METRIC] for r in reversed(worker.reports) if r.metrics)
    return Trained(loss if math.isfinite(loss) else math.inf, time.process_time() - began)


Runs = Mapping[tuple[int, float], Sequence[Trained]]


def runs_of(base: int) -> Runs:
    return {
        (width, rate): [train(width, rate, base, 100 * seed + at) for seed in range(SEEDS)]
        for width in WIDTHS
        for at, rate in enumerate(RATES)
    }


def judge(runs: Runs) -> RateTransfer:
    """Return the judgement of `hposvc transfer` on these trainings."""
    sizes = []
    for width in WIDTHS:
        pairs = [(rate, run.loss) for rate in RATES for run in runs[width, rate]]
        rates, losses = zip(*pairs, strict=True)
        sizes.append(SizeTrials(width, rates, losses))
    return judge_transfer(sizes, "lr", "width", METRIC)


def mean_loss(runs: Sequence[Trained]) -> float:
    return float(np.mean([run.loss for run in runs]))


def search(runs: Runs, width: int) -> tuple[float, float]:
    """Return the best rate of a grid search at a width, and its seconds."""
    seconds = sum(run.seconds for rate in RATES for run in runs[width, rate])
    return min(RATES, key=lambda rate: mean_loss(runs[width, rate])), seconds


def report(name: str, runs: Runs) -> None:
    print(f"\n{name}\n")
    print("| width, lr | " + " | ".join(f"2^{math.log2(rate):.1f}" for rate in RATES) + " |")
    print("| ---: |" + " ---: |" * len(RATES))
    for width in WIDTHS:
        cells = " | ".join(f"{mean_loss(runs[width, rate]):.3f}" for rate in RATES)
        print(f"| {width} | {cells} |")
    judged = judge(runs)
    print(f"\n| width | best lr | {INTERVAL} |\n| ---: | ---: | ---: |")
    for best in judged.optima:
        print(f"| {best.size:g} | {best.rate.value:.4g} | {best.rate.ends('{:.4g}'.format)} |")
    print(f"\n{judged.answer}: {judged.reason}.")
    print(f"The small model's lr costs {judged.cost.text('{:.3f}'.format)} at {WIDTHS[-1]}.")


def costs(plain: Runs, scaled: Runs) -> None:
    """Compare searches that end with a model of the largest width."""
    large = WIDTHS[-1]
    print(f"\n| search | loss at width {large} | core-seconds |\n| --- | ---: | ---: |")
    for name, runs, width in (
        (f"at width {large}", plain, large),
        (f"at width {large}, with scale_from", scaled, large),
        (f"at width {WIDTHS[0]}", plain, WIDTHS[0]),
        (f"at width {WIDTHS[0]}, with scale_from", scaled, WIDTHS[0]),
    ):
        rate, seconds = search(runs, width)
        final = runs[large, rate]
        if width != large:
            seconds += sum(run.seconds for run in final)
        print(f"| {name} | {mean_loss(final):.4f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    plain, scaled = runs_of(0), runs_of(WIDTHS[0])
    report("Without scale_from", plain)
    report(f"With scale_from width {WIDTHS[0]}", scaled)
    costs(plain, scaled)
