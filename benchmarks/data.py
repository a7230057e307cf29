"""Our sources of samples beside torch's plain DataLoader.

A sample takes a while to decode, and an update a while on a device that leaves the processor alone
(it sleeps). Each round, all sources in turn first only load an epoch, then train on one. The plain
DataLoader feeds a loop written by hand; the others, our runtime.

    python benchmarks/data.py
    python benchmarks/data.py --decode-us 1000 --workers 8
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from models import Mlp
from tables import figure, heading, median, spread, table
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from trainables import Data, Tensors, Worker
from trainables.data import Batch, MapDataset, Source
from trainables.environment import keep_freed_memory
from trainables.randomness import permutation
from trainables.trainer.fit import prepare

EPOCHS = 10**6  # of which there is no end
KINDS = ("loading", "training", "waiting")


@dataclass(frozen=True)
class Decoded(Dataset[tuple[Tensor, int]]):
    """Samples that take some microseconds of a processor each."""

    length: int
    decode_us: float

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        end = time.thread_time() + 1e-6 * self.decode_us
        sample = torch.full((16,), position / self.length), position % 10
        while time.thread_time() < end:
            pass
        return sample


@dataclass(frozen=True)
class Fed(Mlp):
    """A small network whose updates take as long as they are told."""

    source: Source | None = None
    device_ms: float = 0.0

    def load_data(self) -> Data:
        assert self.source is not None
        return Data(self.source, Tensors(torch.zeros(1, 16), torch.zeros(1, dtype=torch.int64)))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        time.sleep(1e-3 * self.device_ms)
        return super().compute_losses(model, batch)


class Contestant(Protocol):
    """Loads or trains one epoch."""

    def load(self, number: int) -> None:
        """Nothing but load."""
        ...

    def train(self, number: int) -> float:
        """Returns the share of the time that went into data."""
        ...

    def close(self) -> None: ...


class Ours:
    """A source in our runtime."""

    def __init__(self, source: Source, options: argparse.Namespace) -> None:
        self._options = options
        self._stack = ExitStack()
        self._worker = replace(Worker.alone(until=EPOCHS), every=EPOCHS)
        task = Fed(batch=options.batch, source=source, device_ms=options.device_ms)
        self._session = self._stack.enter_context(prepare(task, self._worker))
        self._source = source.to(torch.device("cpu"), torch.float32)

    def load(self, number: int) -> None:
        order = permutation(number, len(self._source)).split(self._options.batch)
        self._source.plan(order, number)
        for at_B in order:
            self._source.batch(at_B)

    def train(self, number: int) -> float:
        self._session.report(number + 1, self._session.train_steps(number + 1, number + 1))
        return self._worker.reports[-1].metrics["perf/data_wait_fraction"]

    def close(self) -> None:
        self._source.close()
        self._session.passes.data.close()
        self._stack.close()


class Plain:
    """torch's DataLoader and a loop written by hand."""

    def __init__(self, dataset: Decoded, options: argparse.Namespace, workers: int) -> None:
        kept = {"prefetch_factor": options.prefetch, "persistent_workers": True} if workers else {}
        self._loader: Any = DataLoader(dataset, options.batch, True, num_workers=workers, **kept)
        self._task = Fed(batch=options.batch, device_ms=options.device_ms)
        self._model = self._task.build_model()
        self._optimizer = self._task.build_optimizer(self._model)

    def load(self, number: int) -> None:
        for _ in self._loader:
            pass

    def train(self, number: int) -> float:
        begun, waited = time.perf_counter(), 0.0
        batches = self._timed()
        for spent, batch in batches:
            waited += spent
            self._optimizer.zero_grad()
            self._task.compute_losses(self._model, tuple(batch)).mean().backward()
            self._optimizer.step()
        return waited / (time.perf_counter() - begun)

    def _timed(self) -> Iterator[tuple[float, list[Tensor]]]:
        """Each batch, and how long it took to come."""
        batches, asked = iter(self._loader), time.perf_counter()
        for batch in batches:
            yield time.perf_counter() - asked, batch
            asked = time.perf_counter()

    def close(self) -> None:
        self._loader = None


def main() -> None:
    """Read the command line, run the rounds, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=3200, help="an epoch")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--decode-us", type=float, default=200, help="of a sample")
    parser.add_argument("--device-ms", type=float, default=16, help="of an update")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    print(heading(("torch",)))
    keep_freed_memory()
    torch.set_num_threads(1)
    measured = rounds(contestants(options), options)
    print(report(measured, options.samples))


def contestants(options: argparse.Namespace) -> dict[str, Contestant]:
    """All of them, by name."""
    dataset = Decoded(options.samples, options.decode_us)
    fast = replace(dataset, decode_us=0)
    columns = DataLoader(fast, options.samples)
    plain = partial(Plain, dataset, options)
    return {
        "torch's DataLoader": plain(options.workers),
        "`MapDataset`": Ours(MapDataset(dataset, options.workers, options.prefetch), options),
        "torch's DataLoader without workers": plain(0),
        "`Tensors` of what was decoded": Ours(Tensors(*next(iter(columns))), options),
    }


def rounds(all_of_them: dict[str, Contestant], options: argparse.Namespace) -> dict[str, Any]:
    """Seconds and shares by kind and contestant, a round each."""
    measured: dict[str, Any] = {kind: {name: [] for name in all_of_them} for kind in KINDS}
    for number in range(options.rounds + 1):
        for name in np.roll(list(all_of_them), number):
            begun = time.perf_counter()
            all_of_them[name].load(number)
            loaded = time.perf_counter()
            share = all_of_them[name].train(number)
            if number:  # processes start in the first one
                measured["loading"][name].append(loaded - begun)
                measured["training"][name].append(time.perf_counter() - loaded)
                measured["waiting"][name].append(share)
    for each in all_of_them.values():
        each.close()
    return measured


def report(measured: dict[str, Any], samples: int) -> str:
    """The table; beside the first contestant, by rounds."""
    first = next(iter(measured["loading"]))
    rows = []
    for name, seconds in measured["loading"].items():
        ratios = [base / own for base, own in zip(measured["loading"][first], seconds, strict=True)]
        rows.append(
            [
                name,
                figure(samples / median(seconds), 0),
                spread(ratios),
                figure(samples / median(measured["training"][name]), 0),
                spread(measured["waiting"][name]),
            ]
        )
    head = ["source", "samples/s, only loading", "of torch's", "samples/s, training"]
    return table([*head, "share of training that waits"], rows)


if __name__ == "__main__":
    main()
