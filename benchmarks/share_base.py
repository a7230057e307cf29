"""Trials that fine-tune one base by unlike adapters: on one slot in turns, and one after another.

What is counted are trials an hour and the memory of the process. *In turns* is a slot with
`share_base: K`; *at once* makes their passes as one; *one after another* is the same warm process
with one trial at a time; *loading each time* has a process for each trial; *peft* is a script of
its own for each. All have the same trials, of one epoch, and come to the same losses, *at once* up
to rounding; peft starts from other adapters.

    python benchmarks/share_base.py --size 20m 300m
    python benchmarks/share_base.py --size 20m --at-once 1 4 16 --device cuda
"""

import argparse
import math
import multiprocessing
import os
import queue
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
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
from trainables.environment import keep_freed_memory
from trainables.lora import LoraOptions, adapt, load_base
from trainables.memory_estimation.forecast import Variant, make_forecast
from trainables.runtime.coordinator import Coordinator, Switchboard
from trainables.runtime.wire import Call, CoordinatorConnection, Hello, Ready, connect
from trainables.sharing.lane_coordinators import LaneCoordinators
from trainables.sharing.serving import Lane, Lanes

MB = 1e6
WORDS, TOKENS = 4096, 64
SIZES = {  # layers, width, heads
    "tiny": (1, 32, 2),
    "2m": (4, 128, 4),
    "20m": (8, 384, 6),
    "300m": (24, 1024, 16),
    "500m": (24, 1280, 20),
    "2b": (24, 2560, 20),
    "7b": (32, 4096, 32),
}
TRIALS = 16
ROUNDING = 1e-4  # of losses, where passes are made as one


def base_of(size: str, device: str) -> nn.Module:
    """A transformer with random weights, of 16 bits on a GPU."""
    layers, width, heads = SIZES[size]
    with torch.device(device):
        model = gpt.Gpt(gpt.Sizes(WORDS, TOKENS, layers, width, heads))
    return model.bfloat16() if device == "cuda" else model


@dataclass(frozen=True)
class Adapted(Task):
    """A language model on random tokens, with adapters in all layers of its blocks or some."""

    size: str = "2m"
    rank: int = 8
    wide: bool = True  # whether the feed-forward layers are adapted too
    lr: float = 1e-3
    batch: int = 4
    updates: int = 6
    device: str = "cpu"

    def build_model(self) -> nn.Module:
        targets = ("*.attention.*", "*.mlp.*") if self.wide else ("*.attention.*",)
        return adapt(
            load_base(base_of, self.size, self.device), LoraOptions(self.rank, targets=targets)
        )

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


def ways_of(counts: Sequence[int], gpu: bool) -> dict[str, Training]:
    """The ways of training, by name."""
    plain = Training(precision="bf16-mixed") if gpu else Training()
    turns = {f"in turns, {k}": replace(plain, share_base=k) for k in counts}
    joint = {f"at once, {k}": replace(plain, share_base=k, joint_passes=True) for k in counts}
    return {"one after another": plain, **turns, **joint}


def trials(**common: Any) -> list[dict[str, Any]]:
    """Trials of unlike ranks, targets and learning rates."""
    return [
        {**common, "rank": 2 ** (1 + k % 4), "wide": k % 3 > 0, "lr": 1e-3 * (1 + k % 5)}
        for k in range(TRIALS)
    ]


class Result(NamedTuple):
    """What a way of training took."""

    seconds: float  # from the start of the process to the last end
    memory: int  # bytes of the process at its fullest, less those before the first order
    losses: dict[int, float]  # the last of each trial


def serve(config: SlotConfig, call: Call, threads: int) -> None:
    """A rank, in a process of its own: as trainables.runtime.ranks, which needs Ray."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    lanes = []
    for number in range(config.training.share_base):
        coordinator = CoordinatorConnection(connect(call))
        coordinator.send(Hello(call.slot, 0, ("127.0.0.1", 0), "", "", number))
        coordinator.receive()
        lanes.append(Lane(coordinator, None))
    with suppress(EOFError, OSError):  # the coordinator is gone
        Lanes(0, config, lanes, config.folder / "slot.log", ()).serve()
    os._exit(0)


@contextmanager
def slot(training: Training, gpu: bool, threads: int) -> Iterator[tuple[Any, Any, psutil.Process]]:
    """A slot: its coordinator, what it says, and its process."""
    at_once = training.share_base
    said: queue.Queue[Any] = queue.Queue()
    with tempfile.TemporaryDirectory() as folder:
        config = SlotConfig(
            trainable=f"{Path(__file__).resolve()}:Adapted",
            training=training,
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
    chosen: Sequence[Mapping[str, Any]],
    training: Training,
    gpu: bool,
    threads: int,
    first: int = 1,
) -> Result:
    """Train trials on one slot."""
    losses, memory, began = {}, 0.0, time.perf_counter()
    with slot(training, gpu, threads) as (leader, said, process):
        tiny = {"size": "tiny", "rank": 2, "updates": 2, "device": chosen[0]["device"]}
        leader.carry_out(Assignment(Order(10**6, "t9999", tiny, None, 1, 1)))
        while not isinstance(said.get(), Outcome):
            """It has loaded libraries, whose memory is no trial's."""
        before = 0 if gpu else process.memory_info().rss
        waiting = [*enumerate(chosen, first)][::-1]
        running = 0
        while waiting or running:
            while waiting and running < training.share_base:
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


def train_with_peft(params: Mapping[str, Any], threads: int) -> None:
    """Train one trial as a script with peft does, without reports, checkpoints or monitoring."""
    from peft import LoraConfig, get_peft_model

    torch.set_num_threads(threads)
    task = Adapted(**params)
    base = base_of(task.size, task.device)
    linears = [name for name, module in base.named_modules() if isinstance(module, nn.Linear)]
    parts = ("attention", "mlp") if task.wide else ("attention",)
    targets = [name for name in linears if any(f".{part}." in name for part in parts)]
    config = LoraConfig(r=task.rank, lora_alpha=16, target_modules=targets)
    model = get_peft_model(base, config)
    optimizer = task.build_optimizer(model)
    data = task.load_data()
    columns = [column.to(task.device).split(task.batch) for column in data.train.columns]
    for batch in zip(*columns, strict=True):
        optimizer.zero_grad()
        with torch.autocast(task.device, torch.bfloat16, enabled=task.device == "cuda"):
            loss = task.compute_losses(model, batch).mean()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        task.compute_losses(model, tuple(column[0] for column in columns)).mean().item()


def seconds_with_peft(chosen: Sequence[Mapping[str, Any]], threads: int) -> float:
    """The seconds of all trials, one process after the other."""
    began = time.perf_counter()
    for params in chosen:
        process = multiprocessing.get_context("spawn").Process(
            target=train_with_peft, args=(params, threads)
        )
        process.start()
        process.join()
        assert process.exitcode == 0
    return time.perf_counter() - began


def forecast(chosen: Sequence[Mapping[str, Any]], training: Training, gpu: bool) -> float:
    """The mean over trials of the forecast peak of a slot whose trials are all like this one."""
    variant = Variant("", training, 1)
    tasks = [Adapted(**params) for params in chosen]
    return mean(make_forecast(task, task.load_data(), variant, gpu).peak for task in tasks)


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
        chosen = trials(size=size, batch=args.batch, updates=args.updates, device=args.device)
        rows = []
        base = sum(weight.nbytes for weight in base_of(size, "meta").parameters()) // (1 + gpu)
        ways = ways_of(args.at_once, gpu)
        found: dict[str, list[Result]] = {name: [] for name in [*ways, "loading each time"]}
        with_peft = math.inf
        for _ in range(args.rounds):
            for name, training in ways.items():
                found[name].append(train(chosen, training, gpu, args.threads))
            each = [
                train([params], ways["one after another"], gpu, args.threads, number)
                for number, params in enumerate(chosen, 1)
            ]
            losses = {number: loss for one in each for number, loss in one.losses.items()}
            seconds, memory = sum(one.seconds for one in each), max(one.memory for one in each)
            found["loading each time"].append(Result(seconds, memory, losses))
            with_peft = min(with_peft, seconds_with_peft(chosen, args.threads))
        alone = found["one after another"]
        for name, results in found.items():
            for result in results:
                ratios = [result.losses[number] / loss for number, loss in alone[0].losses.items()]
                off = max(abs(ratio - 1) for ratio in ratios)
                assert gpu or off <= ROUNDING * name.startswith("at once"), (name, off)
            seconds = min(result.seconds for result in results)
            rate = min(result.seconds for result in alone) / seconds
            peak = max(result.memory for result in results)
            guess = forecast(chosen, ways.get(name, ways["one after another"]), gpu)
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
        own = min(result.seconds for result in alone)
        pace = TRIALS / with_peft * 3600
        rows.append(["peft, a process each", figure(pace, 0), figure(own / with_peft), *[""] * 3])
        lengths = f"{args.updates} updates of {args.batch} x {TOKENS} tokens"
        print(f"\n**{size}** weights, {base / MB:,.0f} MB; {TRIALS} trials of {lengths}\n")
        head = ["", "trials an hour", "ratio", "memory, MB", "forecast, MB", "of the forecast"]
        print(table(head, rows), flush=True)


if __name__ == "__main__":
    main()
