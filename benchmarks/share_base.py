"""Trials that fine-tune one base by unlike adapters: on one slot in turns, and one after another.

What is counted are trials an hour and the memory of the process. *In turns* is a slot with
`share_base: K`; *one after another* the same warm process with one trial at a time, which keeps the
base too; *loading each time* a process for each trial. All have the same trials, of one update an
epoch, and come to the same losses.

    python benchmarks/share_base.py --size 20m 300m
    python benchmarks/share_base.py --size 20m --at-once 1 4 16 --device cuda
"""

import argparse
import multiprocessing
import os
import queue
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch
from models import gpt
from tables import figure, heading, table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainables import Data, Task, Tensors, Training
from trainables.contract import Assignment, Order, Outcome, Report, SlotConfig
from trainables.data import Batch
from trainables.lora import LoraOptions, adapt, load_base
from trainables.memory_estimation.forecast import Variant, make_forecast
from trainables.runtime.coordinator import Coordinator, Switchboard
from trainables.runtime.ranks import Rank
from trainables.runtime.wire import Call, Ready
from trainables.sharing.lane_coordinators import LaneCoordinators

MB = 1e6
WORDS, TOKENS = 4096, 64
SIZES = {"2m": (4, 128, 4), "20m": (8, 384, 6), "300m": (24, 1024, 16)}  # layers, width, heads
TRIALS = 16


def base_of(size: str) -> nn.Module:
    """A transformer with random weights."""
    layers, width, heads = SIZES[size]
    return gpt.Gpt(gpt.Sizes(WORDS, TOKENS, layers, width, heads))


@dataclass(frozen=True)
class Adapted(Task):
    """A language model on random tokens, with adapters in all layers of its blocks or some."""

    size: str = "2m"
    rank: int = 8
    wide: bool = True  # whether the feed-forward layers are adapted too
    lr: float = 1e-3
    batch: int = 4
    updates: int = 6

    def build_model(self) -> nn.Module:
        targets = ("*.attention.*", "*.mlp.*") if self.wide else ("*.attention.*",)
        return adapt(load_base(base_of, self.size), LoraOptions(self.rank, targets=targets))

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        return torch.optim.AdamW(weights, lr=self.lr)

    def load_data(self) -> Data:
        samples = self.updates * self.batch
        text = torch.randint(
            WORDS, (samples, TOKENS + 1), generator=torch.Generator().manual_seed(1)
        )
        columns = text[:, :-1].contiguous(), text[:, 1:].contiguous()
        return Data(Tensors(*columns), Tensors(*(column[: self.batch] for column in columns)))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x_BT, y_BT = batch
        return cross_entropy(model(x_BT).flatten(0, 1), y_BT.flatten(), reduction="none")


def trials(**common: Any) -> list[dict[str, Any]]:
    """Trials of unlike ranks, targets and learning rates."""
    return [
        {**common, "rank": 2 ** (1 + k % 4), "wide": k % 3 > 0, "lr": 1e-3 * (1 + k % 5)}
        for k in range(TRIALS)
    ]


class Result(NamedTuple):
    """What a way of training took."""

    seconds: float  # from the first order to the last end
    memory: int  # bytes of the process at its fullest, less those before the first order
    losses: dict[int, float]  # the last of each trial


def serve(config: SlotConfig, call: Call, threads: int) -> None:
    """A rank, in a process of its own."""
    torch.set_num_threads(threads)
    Rank(0, config).serve(call)
    os._exit(0)


@contextmanager
def slot(at_once: int, gpu: bool, threads: int) -> Iterator[tuple[Any, Any, psutil.Process]]:
    """A slot for so many trials at once: its coordinator, what it says, and its process."""
    said: queue.Queue[Any] = queue.Queue()
    with tempfile.TemporaryDirectory() as folder:
        config = SlotConfig(
            trainable=f"{Path(__file__).resolve()}:Adapted",
            training=Training(share_base=at_once),
            metrics=("val/loss",),
            total=1,
            every=1,
            seed=0,
            folder=Path(folder),
            gpu=gpu,
        )
        lanes = LaneCoordinators(at_once, 1, said.put, config.stall_s)
        leader = Coordinator(1, said.put, config.stall_s) if at_once == 1 else lanes
        board = Switchboard("127.0.0.1")
        board.connect("s", leader)
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=serve, args=(config, board.call("s"), threads))
        process.start()
        try:
            assert said.get() == Ready()
            yield leader, said, psutil.Process(process.pid)
        finally:
            process.kill()
            process.join()
            board.close()


def train(
    chosen: Sequence[Mapping[str, Any]], at_once: int, gpu: bool, threads: int, first: int = 1
) -> Result:
    """Train trials on one slot."""
    losses, memory = {}, 0.0
    with slot(at_once, gpu, threads) as (leader, said, process):
        before = 0 if gpu else process.memory_info().rss
        waiting = [*enumerate(chosen, first)][::-1]
        running, began = 0, time.perf_counter()
        while waiting or running:
            while waiting and running < at_once:
                number, params = waiting.pop()
                order = Order(number, f"t{number:04}", params, None, 1, 1)
                leader.carry_out(Assignment(order))
                running += 1
            message = said.get()
            if isinstance(message, Report):
                losses[message.order] = message.metrics["val/loss"]
                memory = max(memory, message.metrics["perf/memory_peak_gb"] * 1e9)
            if isinstance(message, Outcome):
                assert message.kind == "ended", message
                running -= 1
        return Result(time.perf_counter() - began, int(memory) - before, losses)


def forecast(params: Mapping[str, Any], at_once: int, gpu: bool) -> int:
    """The forecast peak of a slot whose trials are all like this one."""
    task = Adapted(**params)
    variant = Variant("", Training(share_base=at_once), 1)
    return make_forecast(task, task.load_data(), variant, gpu).peak


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--size", nargs="+", choices=SIZES, default=["20m"])
    parser.add_argument("--at-once", nargs="+", type=int, default=[4, 16])
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    gpu = args.device == "cuda"
    print(heading(("torch",)))
    for size in args.size:
        chosen = trials(size=size, batch=args.batch, updates=args.updates)
        rows = []
        base = sum(weight.nbytes for weight in base_of(size).parameters())
        ways = {"one after another": 1} | {f"in turns, {k} at once": k for k in args.at_once}
        found: dict[str, list[Result]] = {name: [] for name in [*ways, "loading each time"]}
        for _ in range(args.rounds):
            for name, at_once in ways.items():
                found[name].append(train(chosen, at_once, gpu, args.threads))
            each = [
                train([params], 1, gpu, args.threads, number)
                for number, params in enumerate(chosen, 1)
            ]
            losses = {number: loss for one in each for number, loss in one.losses.items()}
            seconds, memory = sum(one.seconds for one in each), max(one.memory for one in each)
            found["loading each time"].append(Result(seconds, memory, losses))
        expected = found["one after another"][0].losses
        for name, results in found.items():
            assert all(result.losses == expected for result in results), name
            seconds = min(result.seconds for result in results)
            rate = min(result.seconds for result in found["one after another"]) / seconds
            peak = max(result.memory for result in results)
            guess = forecast(chosen[1] | {"rank": 8}, ways.get(name, 1), gpu)
            pace = TRIALS / seconds * 3600
            rows.append(
                [
                    name,
                    figure(pace, 0),
                    figure(rate),
                    figure(peak / MB, 0),
                    figure(guess / MB, 0),
                    figure(peak / guess),
                ]
            )
        lengths = f"{args.updates} updates of {args.batch} x {TOKENS} tokens"
        print(f"\n**{size}** weights, {base / MB:,.0f} MB; {TRIALS} trials of {lengths}\n")
        head = ["", "trials an hour", "ratio", "memory, MB", "forecast, MB", "of the forecast"]
        print(table(head, rows), flush=True)


if __name__ == "__main__":
    main()
