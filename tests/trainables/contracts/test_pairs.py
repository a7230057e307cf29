"""Every pair of training options that is not refused, on two ranks: a covering array of runs.

Each run sets many options, so some dozens of runs hold every pair of values (a 2-way covering
array; Cohen et al., The AETG System, 1997). If one fails, two options that `validate` lets pass
together do not work together.
"""

import random
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from tasks import Deep, alone, curve
from tolerances import CALM, CLOSE, LOCAL_DIFFERS

from trainables import Training, Worker
from trainables.combinations import nan_refusals, refusals
from trainables.training_state import precision

STEPS = 2
VALUES: dict[str, tuple[Any, ...]] = {  # the first is the default
    "strategy": ("ddp", "zero1", "fsdp", "tensor", "pipeline", "local_sgd"),
    "precision": ("32-true", "64-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true"),
    "nan": ("stop", "skip", "rollback"),
    "accumulate": (1, 2),
    "clip": (None, 0.5),
    "clip_by": ("norm", "value", "adaptive"),
    "bucket_cap_mb": (25.0, 1.0, 0.001),
    "static_graph": (False, True),
    "sync_batchnorm": (False, True),
    "gradient_compression": ("none", "fp16", "powersgd"),
    "reshard_after_forward": (True, False),
    "tensor_parallel": (1, 2),
    "pipeline_schedule": ("1f1b", "gpipe", "interleaved"),
    "sync_every": (8, 1),
    "tf32": (False, True),
    "float32_modules": ((), ("4",)),
    "activation_checkpointing": (0, 1),
    "attention": ("auto", "math"),
    "compile": ("none", "aot_eager"),
    "optimizer": ("task", "adamw", "sgd", "lars", "lamb", "adafactor", "muon"),
    "layer_decay": (1.0, 0.7),
    "schedule": ("task", "cosine", "plateau"),
    "warmup": (0.0, 0.1),
    "lr_scaling": ("none", "sqrt"),
    "ema": (None, 0.9),
    "log_layers_every": (0, 2),
    "deterministic": (False, True),
}
Choice = Mapping[str, Any]
Pair = tuple[tuple[str, Any], tuple[str, Any]]


def pairs(chosen: Choice) -> set[Pair]:
    """Return the pairs of values in a run."""
    settings = [(name, chosen.get(name, values[0])) for name, values in VALUES.items()]
    return set(combinations(settings, 2))


def allowed(chosen: Choice) -> bool:
    """Return whether `validate` accepts these options on two ranks."""
    options = Training(**{"strategy": "ddp"} | {k: v for k, v in chosen.items() if k != "nan"})
    nan = chosen.get("nan", "stop")
    return not [*refusals(options, 2), *nan_refusals(options, 2, nan)]


def extended(chosen: dict[str, Any], open_: set[Pair], draws: random.Random) -> dict[str, Any]:
    """Return the run with more options set, so that it covers many pairs not covered yet."""
    for name in draws.sample(list(VALUES), len(VALUES)):
        if name not in chosen:
            fits = [chosen | {name: value} for value in VALUES[name]]
            fits = [candidate for candidate in fits if allowed(candidate)]
            chosen = max(fits, key=lambda candidate: len(pairs(candidate) & open_), default=chosen)
    return chosen


def covering() -> Iterator[dict[str, Any]]:
    """Return runs that together cover each pair of values allowed in some run."""
    draws = random.Random(0)
    every = [(name, value) for name, values in VALUES.items() for value in values]
    open_ = {(first, second) for first, second in combinations(every, 2) if first[0] != second[0]}
    for pair in sorted(open_, key=repr):
        if pair not in open_:
            continue
        # Some options work with others only: a clip_by needs a clip, a warmup a schedule.
        helps: tuple[dict[str, Any], ...] = (
            {}, {"clip": 0.5}, {"schedule": "cosine"}, {"optimizer": "sgd"}, {"accumulate": 2},
            {"clip": 0.5, "schedule": "cosine"}, {"clip": 0.5, "optimizer": "sgd"},
            {"schedule": "cosine", "optimizer": "sgd"}, {"clip": 0.5, "accumulate": 2},
            {"schedule": "cosine", "accumulate": 2}, {"optimizer": "sgd", "accumulate": 2},
        )  # fmt: skip
        starts = (
            {**help_, "strategy": strategy, **dict(pair)}
            for strategy in VALUES["strategy"]
            for help_ in helps
        )
        start = next(filter(allowed, starts), None)
        if start is not None:
            run = extended(start, open_, draws)
            open_ -= pairs(run)
            yield run


def on_rank(rank: int, runs: list[dict[str, Any]]) -> list[Any]:
    """Return the curve of each run; after an error, return that and stop."""
    precision.FIRST_SCALE = CALM
    results: list[Any] = []
    for chosen in runs:
        try:
            results.append(learned(chosen, rank, 2))
        except Exception:  # noqa: BLE001 - whatever it is, the test shows it
            results.append(traceback.format_exc())
    return results


def learned(chosen: Choice, rank: int = 0, ranks: int = 1) -> list[dict[str, float]]:
    """Return a rank's reports."""
    options = Training(**{k: v for k, v in chosen.items() if k != "nan"})
    if ranks == 1:
        options = alone(replace(options, static_graph=False, sync_batchnorm=False))
        options = replace(options, gradient_compression="none", bucket_cap_mb=25.0)
    lone_worker = Worker.alone(until=STEPS, training=options)
    worker = replace(lone_worker, rank=rank, world_size=ranks, nan=chosen.get("nan", "stop"))
    Deep().train(worker)
    return curve(worker)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(6, id="first", marks=pytest.mark.long),  # which hold most of the pairs
        pytest.param(None, id="all", marks=pytest.mark.full),
    ],
)
def test_every_pair_of_options_that_is_let_pass_learns_what_one_rank_learns(
    number, on_two_ranks, monkeypatch
):
    runs = list(covering())
    assert len(runs) > 30
    runs = runs[:number]
    monkeypatch.setattr(precision, "FIRST_SCALE", CALM)
    wrong = []
    for at in range(0, len(runs), 20):  # a failure may leave ranks apart: others begin afresh
        part = runs[at : at + 20]
        for chosen, result in zip(part, on_two_ranks(on_rank, part)[0], strict=True):
            wrong += faults(chosen, result)
    assert not wrong, "\n\n".join(wrong)


def faults(chosen: Choice, found: Any) -> Iterator[str]:
    """Return the faults of a run, if there are any."""
    shown = ", ".join(f"{name}: {value}" for name, value in chosen.items())
    if isinstance(found, str):
        yield f"{shown}\n{found[-1500:]}"
        return
    rounded = chosen.get("gradient_compression", "none") != "none"
    differs = chosen["strategy"] == "local_sgd" and (
        chosen.get("sync_every") != 1
        or any(chosen.get(name, VALUES[name][0]) != VALUES[name][0] for name in LOCAL_DIFFERS)
    )
    expected = learned(chosen)
    off = max(
        abs(metrics[name] - other[name])
        for metrics, other in zip(found, expected, strict=True)
        for name in ("train/loss", "val/loss")
    )
    if off > CLOSE[chosen.get("precision", "32-true")] and not (rounded or differs):
        yield f"{shown}\nis {off:.2g} off"
