"""The parts of gpu.py: each yields rows, and takes at most eight minutes on an H100."""

import gc
import math
import os
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest.mock import patch

import batched
import numpy as np
import psutil
import torch
import training as loops_beside
from gpu_rows import Part, Row, Setting, Skip, attempt
from loops import LOOPS
from models import Gpt, Mlp
from tables import figure
from torch import Tensor

from trainables import Training, Worker
from trainables.data import Batch
from trainables.monitoring.flops import count_flops
from trainables.monitoring.peaks import peak
from trainables.parallel.group import RankStore
from trainables.parallel.strategy import Strategy
from trainables.strategies import STRATEGIES
from trainables.trainer import fit
from trainables.trainer.fit import prepare

GB = 1e9
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true")


def strategies_alone(setting: Setting) -> Iterator[Row]:
    """Each strategy in a group of one rank learns what a single rank learns."""
    exact = Training(precision="64-true")
    expected = losses(train(small(setting), exact, setting))
    for name in [name for name, traits in STRATEGIES.items() if traits.several_ranks]:
        sequential = not STRATEGIES[name].data_parallel
        task: Any = Mlp(updates=10, batch=32) if sequential else small(setting)
        beside = expected if task == small(setting) else losses(train(task, exact, setting))

        def off(name: str = name, task: Any = task, beside: list[float] = beside) -> str:
            if name == "deepspeed" and find_spec("deepspeed") is None:
                raise Skip("deepspeed is not installed")
            precision: Any = "32-true" if name == "deepspeed" else "64-true"
            options = Training(strategy=name, precision=precision)
            with group_of_one(setting):
                return difference(losses(train(task, options, setting)), beside)

        aim = "below 1e-3" if name == "deepspeed" else "below 1e-9"
        yield attempt(f"{name}: losses beside single", aim, off)


def precisions(setting: Setting) -> Iterator[Row]:
    """Number formats: what is learned, how fast, and in how much memory."""
    exact = losses(train(small(setting), Training(precision="64-true"), setting))
    aims = {"64-true": "0", "32-true": "below 1e-2"}
    for name in PRECISIONS:
        yield attempt(
            name,
            f"{aims.get(name, 'below 0.1')} off",
            lambda name=name: paced(setting, exact, precision=name),
        )
    yield attempt("32-true, tf32", "below 1e-2 off", lambda: paced(setting, exact, tf32=True))
    yield attempt(
        "16-mixed, accumulate 2, clip 1",
        "below 0.1 off",
        lambda: paced(setting, exact, precision="16-mixed", accumulate=2, clip=1.0),
    )


def compiled(setting: Setting) -> Iterator[Row]:
    """torch.compile: the same losses, and faster updates."""
    compiler: Any = "inductor" if setting.gpu else "aot_eager"
    exact = losses(train(small(setting), Training(), setting))
    mixed: dict[str, Any] = {"precision": "bf16-mixed"} if setting.gpu else {}
    for name, options in (("none", {}), (compiler, {"compile": compiler})):
        yield attempt(
            f"compile: {name}",
            "below 0.1 off",
            lambda options=options: paced(setting, exact, **mixed, **options),
        )


def offloaded(setting: Setting) -> Iterator[Row]:
    """fsdp with cpu_offload: the same losses, in less of the GPU's memory."""
    for offload in (False, True):

        def measure(offload: bool = offload) -> str:
            if offload and not setting.gpu:
                raise Skip("there is no GPU to take weights from")
            exact = losses(train(small(setting), Training(), setting))
            with group_of_one(setting):
                return paced(setting, exact, strategy="fsdp", cpu_offload=offload)

        yield attempt(f"fsdp, cpu_offload: {str(offload).lower()}", "below 1e-2 off", measure)


def checkpoints(setting: Setting) -> Iterator[Row]:
    """Checkpoints: how long training waits for each."""
    task = small(setting) if setting.quick else Gpt(batch=4, updates=10)
    until = 3 if setting.quick else 6
    for name, fields, aim in (
        ("none", {"every": 10**6}, ""),
        ("written behind training", {"every": 1}, "a tenth of the next row"),
        ("that a decision waits for", {"every": 1, "milestones": tuple(range(1, 99))}, ""),
    ):
        yield attempt(name, aim, lambda fields=fields: waits(setting, task, until, fields))


def waits(setting: Setting, task: Any, until: int, fields: Mapping[str, Any]) -> str:
    """Return how long reports take, and how long an epoch with its report."""
    reports, epochs = [], []
    with tempfile.TemporaryDirectory() as folder:
        worker = replace(on(setting, until=until + 1, folder=Path(folder)), **fields)
        with prepare(task, worker) as trainer, trainer.saver:
            for step in range(1, until + 1):
                begun = now(setting)
                tallies = trainer.train_steps(step, step)
                learned = now(setting)
                trainer.report(step, tallies)
                reports.append(now(setting) - learned)
                epochs.append(now(setting) - begun)
            size = sum(weight.nbytes for weight in trainer.state.model.parameters())
    return (
        f"{figure(1e3 * float(np.median(reports[1:])), 1)} ms a report, "
        f"{figure(1e3 * float(np.median(epochs[1:])), 1)} ms an epoch; weights "
        f"{figure(size / GB, 3)} GB"
    )


def orders(setting: Setting) -> Iterator[Row]:
    """A hundred orders in one warm process: memory stays flat."""
    count, task = (8, small(setting)) if setting.quick else (100, small(setting))
    held: list[int] = []
    seconds: list[float] = []

    def grown() -> str:
        store = RankStore.open("127.0.0.1", 1, gpu=setting.gpu)
        precision: Any = ("32-true", "bf16-mixed", "16-mixed", "64-true")
        with patch.object(fit, "choose", strategy_alone):
            for order in range(1, count + 1):
                begun = time.perf_counter()
                with store.group(order), tempfile.TemporaryDirectory() as folder:
                    name: Any = ("single", "ddp", "fsdp")[order % 3]
                    options = Training(strategy=name, precision=precision[order % 4])
                    worker = on(setting, until=1, folder=Path(folder), training=options)
                    task.train(replace(worker, order=order))
                gc.collect()
                held.append(memory(setting))
                seconds.append(time.perf_counter() - begun)
        store.drop()
        warm = held[len(held) // 4]
        return f"{figure((held[-1] - warm) / 2**20, 2)} MiB from order {len(held) // 4 + 1} on"

    kind = "torch.cuda.memory_allocated" if setting.gpu else "resident memory"
    yield attempt(f"growth of {kind} over {count} orders", "0" if setting.gpu else "", grown)
    yield attempt("an order", "", lambda: f"{figure(1e3 * float(np.median(seconds)), 1)} ms")


def memory_that_runs_out(setting: Setting) -> Iterator[Row]:
    """Memory that runs out: micro-batches shrink exactly, and what never fits is said."""
    exact, wide = Training(precision="64-true"), Wide(width=256, batch=64, updates=3)

    def shrunk() -> str:
        fits = losses(train(wide, exact, setting))
        reports = train(Hungry.like(wide, 20), exact, setting)
        micro_batches = reports[-1]["train/accumulate"]
        return f"{micro_batches:g} micro-batches, {difference(losses(reports), fits)}"

    yield attempt("more than 20 samples do not fit: halved", "4, below 1e-9 off", shrunk)

    def limited() -> str:
        if not setting.gpu:
            raise Skip("there is no GPU, and memory_fraction is of its memory")
        large = replace(wide, width=2048, batch=65536)  # activations of some GB, weights of few MB
        fits = losses(train(large, exact, setting))
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        room, total = torch.cuda.memory_reserved() + 2 * GB, torch.cuda.mem_get_info()[1]
        reports = train(large, replace(exact, memory_fraction=room / total), setting)
        return (
            f"{reports[-1]['train/accumulate']:g} micro-batches, "
            f"{difference(losses(reports), fits)}, "
            f"{figure(torch.cuda.max_memory_reserved() / GB)} of {figure(room / GB)} GB reserved"
        )

    yield attempt("memory_fraction: shrinks, and stays below", "below 1e-9 off", limited)

    def never() -> str:
        try:
            train(Hungry.like(wide, 0), Training(), setting)
        except torch.OutOfMemoryError as error:
            return f"{type(error).__name__}: {error}"
        raise ValueError("it trained, although nothing fits")

    yield attempt("a single sample does not fit: the error", "says so", never)


def together(setting: Setting) -> Iterator[Row]:
    """Trials that train at once in one process, beside one trial at a time."""
    counts = (1, 8) if setting.quick else (8, 32, 64, 128, 256)
    for model in ("mlp", "cnn"):
        ways = [batched.Way("alone", batched.ALONE, 1)]
        ways += [batched.Way(f"{count} at once", count, 1) for count in counts]
        paces: dict[str, list[batched.Pace]] = {}
        options = Namespace(
            model=model,
            device=setting.device.type,
            rounds=1 if setting.quick else 5,
            turn=0.2 if setting.quick else 2.0,
        )

        def measure(options: Namespace = options, ways: Any = ways, paces: Any = paces) -> str:
            paces.update(batched.measure(ways, options))
            return f"{figure(median_of(paces['alone']), 1)} trial-epochs/s"

        yield attempt(f"{model}: one trial at a time", "", measure)
        for way in ways[1:] if paces else ():
            ratio = [
                own.wall / one.wall
                for own, one in zip(paces[way.name], paces["alone"], strict=True)
            ]
            value = f"{figure(median_of(paces[way.name]), 1)} trial-epochs/s, "
            value += f"{figure(float(np.median(ratio)))} times"
            yield Row(f"{model}: {way.name}", value, "20 times, at the best number")


def one_base(setting: Setting) -> Iterator[Row]:
    """Unlike adapters on one base: in turns, and with their passes made as one."""
    if find_spec("greenlet") is None:
        yield Row("trials on one base", aim="6 times", skipped="greenlet is not installed")
        return
    import share_base

    counts, sizes = ((2,), ("2m",)) if setting.quick else ((8, 16), ("500m", "2b", "7b"))
    updates, device = 2 if setting.quick else 30, setting.device.type
    for size in sizes:
        chosen = share_base.trials(size=size, batch=1, updates=updates, device=device)
        alone: list[float] = []

        def measure(training: Training, chosen: Any = chosen, alone: Any = alone) -> str:
            found = share_base.train(chosen, training, setting.gpu, os.cpu_count() or 1)
            alone.append(found.seconds)
            pace = 3600 * len(chosen) / found.seconds
            return (
                f"{figure(pace, 0)} trials/h, {figure(alone[0] / found.seconds)} times, "
                f"{figure(found.memory / GB, 1)} GB"
            )

        for name, training in share_base.ways_of(counts, setting.gpu).items():
            aim = "6 times" if "at once" in name else ""
            yield attempt(f"{size}: {name}", aim, lambda training=training: measure(training))


def median_of(paces: list[batched.Pace]) -> float:
    """Return the middle pace."""
    return float(np.median([pace.wall for pace in paces]))


def loops(setting: Setting) -> Iterator[Row]:
    """Our loop beside a bare one, accelerate and Fabric, where the model is tiny."""
    yield from beside(setting, "mlp", {}, 20)


def utilisation(setting: Setting) -> Iterator[Row]:
    """A GPT of 124 million parameters: the share of the GPU's peak, beside other loops."""
    name = "gpt-small" if setting.quick else "gpt"
    mixed = {"precision": "bf16-mixed"}
    yield from beside(setting, name, mixed, 10)
    if setting.gpu:
        yield from beside(setting, name, {**mixed, "compile": True}, 10)


def beside(setting: Setting, model: str, options: Mapping[str, Any], updates: int) -> Iterator[Row]:
    """Yield a row a loop: updates a second, the share of the bare loop's, and MFU."""
    given = {"precision": "32-true", "compile": False, **options}
    rounds = 2 if setting.quick else (30 if model == "mlp" else 8)
    sizes = {"updates": 2, "batch": 2} if setting.quick else {"updates": updates, "batch": None}
    present = [name for name in LOOPS if name not in PACKAGE or find_spec(PACKAGE[name])]
    fields = Namespace(
        model=model, ranks=1, device=setting.device.type, rounds=rounds, loops=present,
        **{**given, **sizes},
    )  # fmt: skip
    seconds: dict[str, Any] = {}
    what = f"{model}, {given['precision']}" + ", inductor" * given["compile"]

    missing = {name: f"{package} is not installed" for name, package in PACKAGE.items()}

    def measure() -> str:
        try:
            seconds.update(timed(present))
        except Exception as error:  # noqa: BLE001 - a library's loop may not work here; ours should
            missing.update({name: f"the loops broke: {error}" for name in PACKAGE})
            seconds.update(timed(["ours", "bare"]))
        return shown("bare")

    def timed(names: list[str]) -> dict[str, Any]:
        fields.loops = names
        with tempfile.TemporaryDirectory() as folder:
            loops_beside.rounds(0, fields, Path(folder))
            return dict(zip(names, np.load(Path(folder) / "seconds.npy"), strict=True))

    def shown(name: str) -> str:
        if name not in seconds:
            raise Skip(missing.get(name, "the bare loop broke, see there"))
        pace = fields.updates / float(np.median(seconds[name]))
        share = float(np.median(seconds["bare"] / seconds[name]))
        text = f"{figure(pace, 1)} updates/s, {figure(share, 3)} of bare"
        most = peak(setting.device, given["precision"])
        if model == "mlp":
            return text
        if most is None:
            return f"{text}; no MFU: the peak of this device is not known"
        return f"{text}, MFU {figure(100 * pace * operations(setting, model) / most, 1)} %"

    yield attempt(f"{what}: bare", "", measure)
    for name in (name for name in LOOPS if name != "bare"):
        aim = "0.98 of bare" if name == "ours" else ""
        yield attempt(f"{what}: {name}", aim, lambda name=name: shown(name))


PACKAGE = {"fabric": "lightning", "accelerate": "accelerate"}


def operations(setting: Setting, model: str) -> float:
    """Return the floating-point operations of an update."""
    task = loops_beside.MODELS[model](updates=1)
    network = task.build_model().to(setting.device)
    batch = tuple(column.to(setting.device) for column in task.load_data().train.columns)
    with count_flops() as count:
        task.compute_losses(network, tuple(column[:1] for column in batch)).mean().backward()
    return float(count.model * task.batch)


# What parts share


@dataclass(frozen=True)
class Wide(Mlp):
    """A perceptron whose activations are large."""

    width: int = 8192

    def build_model(self) -> torch.nn.Module:
        layers = [torch.nn.Linear(16, self.width)]
        layers += [torch.nn.Linear(self.width, self.width)]
        tanh = torch.nn.Tanh
        return torch.nn.Sequential(
            layers[0], tanh(), layers[1], tanh(), torch.nn.Linear(self.width, 10)
        )


@dataclass(frozen=True)
class Hungry(Wide):
    """Wide, whose memory runs out where a micro-batch has more samples than this."""

    most: int = 20

    @classmethod
    def like(cls, wide: Wide, most: int) -> "Hungry":
        return cls(lr=wide.lr, batch=wide.batch, updates=wide.updates, width=wide.width, most=most)

    def compute_losses(self, model: torch.nn.Module, batch: Batch) -> Tensor:
        if torch.is_grad_enabled() and len(batch[0]) > self.most:
            if batch[0].is_cuda:
                torch.empty(2**46, dtype=torch.uint8, device=batch[0].device)  # 64 TiB
            raise torch.OutOfMemoryError(f"out of memory: {len(batch[0])} samples do not fit")
        return super().compute_losses(model, batch)


def small(setting: Setting) -> Gpt:
    """Return a GPT that trains in seconds."""
    sizes = {"layers": 2, "width": 32, "heads": 2, "tokens": 16, "words": 64}
    if not setting.quick:
        sizes = {"layers": 6, "width": 384, "heads": 6, "tokens": 256, "words": 4096}
    return Gpt(batch=4 if setting.quick else 16, updates=3 if setting.quick else 20, **sizes)


def on(setting: Setting, until: int = 2, **fields: Any) -> Worker:
    """Return a worker on the device."""
    return Worker.alone(until=until, gpu=setting.gpu, **fields)


def train(task: Any, training: Training, setting: Setting) -> list[dict[str, float]]:
    """Return the reports of an order of two epochs."""
    worker = on(setting, training=training)
    task.train(replace(worker, every=10**6))
    return [dict(report.metrics) for report in worker.reports]


def losses(reports: list[dict[str, float]]) -> list[float]:
    """Return the losses of all steps."""
    return [report[name] for report in reports for name in ("train/loss", "val/loss")]


def difference(found: list[float], expected: list[float]) -> str:
    """Return how far losses are from others, at most."""
    worst = max(abs(own - other) for own, other in zip(found, expected, strict=True))
    if not math.isfinite(worst):
        raise ValueError(f"losses are {found}")
    return f"{worst:.1e} off"


def paced(setting: Setting, exact: list[float], **options: Any) -> str:
    """Return how far an order's losses are from others, its pace and its peak of memory."""
    if setting.gpu:
        torch.cuda.reset_peak_memory_stats()
    task, worker = small(setting), on(setting, training=Training(**options))
    seconds = []
    with prepare(task, replace(worker, every=10**6)) as trainer:
        for step in (1, 2):
            begun = now(setting)
            tallies = trainer.train_steps(step, step)
            seconds.append(now(setting) - begun)
            trainer.report(step, {**tallies, **trainer.evaluate()})
    reports = [dict(report.metrics) for report in worker.reports]
    text = (
        f"{difference(losses(reports), exact)}, {figure(task.updates / seconds[-1], 1)} updates/s"
    )
    if setting.gpu:
        text += f", peak {figure(torch.cuda.max_memory_allocated() / GB)} GB"
    return text


def now(setting: Setting) -> float:
    """Return the time when the device has done what it was given."""
    if setting.gpu:
        torch.cuda.synchronize()
    return time.perf_counter()


def memory(setting: Setting) -> int:
    """Return the bytes that this process holds."""
    if setting.gpu:
        return torch.cuda.memory_allocated()
    return int(psutil.Process().memory_info().rss)


def strategy_alone(worker: Worker, plan: Any) -> Strategy:
    """Return the strategy that the options name, though there is one rank."""
    strategy: Strategy = resolve_name(worker.training.traits.strategy_class)(worker, plan)
    return strategy


@contextmanager
def group_of_one(setting: Setting) -> Iterator[None]:
    """Provide a group of one rank, in which strategies for several ranks train all the same."""
    store = RankStore.open("127.0.0.1", 1, gpu=setting.gpu)
    with ExitStack() as stack:
        stack.callback(store.drop)
        stack.enter_context(store.group(1))
        stack.enter_context(patch.object(fit, "choose", strategy_alone))
        # One worker shards nothing, says the check; here the strategy's code is what counts.
        stack.enter_context(patch.object(fit.combinations, "check"))
        stack.enter_context(patch.dict(os.environ, {"DS_ACCELERATOR": setting.device.type}))
        yield


PARTS: dict[int, Part] = dict(
    enumerate(
        (
            strategies_alone,
            precisions,
            compiled,
            offloaded,
            checkpoints,
            orders,
            memory_that_runs_out,
            together,
            loops,
            utilisation,
            one_base,
        ),
        1,
    )
)
