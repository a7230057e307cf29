"""A covering array of training options on two ranks: runs that hold every pair of values.

Each run sets many options, so some dozens of runs hold every pair of values (a 2-way covering
array; Cohen et al., The AETG System, 1997).
"""

import random
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

from trainables import Training
from trainables.combinations import nan_refusals, refusals
from trainables.strategies import STRATEGIES

VALUES: dict[str, tuple[Any, ...]] = {  # the first is the default
    "strategy": tuple(name for name in STRATEGIES if name not in ("single", "deepspeed")),
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
Combination = tuple[tuple[str, Any], ...]  # of an option and its value
# Some options work with others only: a clip_by needs a clip, a warmup a schedule.
HELPS: tuple[dict[str, Any], ...] = (
    {}, {"clip": 0.5}, {"schedule": "cosine"}, {"optimizer": "sgd"}, {"accumulate": 2},
    {"clip": 0.5, "schedule": "cosine"}, {"clip": 0.5, "optimizer": "sgd"},
    {"schedule": "cosine", "optimizer": "sgd"}, {"clip": 0.5, "accumulate": 2},
    {"schedule": "cosine", "accumulate": 2}, {"optimizer": "sgd", "accumulate": 2},
)  # fmt: skip
HELPS += tuple(help_ | {"sync_batchnorm": True} for help_ in HELPS)


def allowed(chosen: Choice) -> bool:
    """Return whether `validate` accepts these options on two ranks."""
    options = Training(**{"strategy": "ddp"} | {k: v for k, v in chosen.items() if k != "nan"})
    nan = chosen.get("nan", "stop")
    return not [*refusals(options, 2), *nan_refusals(options, 2, nan)]


def every(together: int) -> set[Combination]:
    """Return all combinations of values of so many options."""
    settings = [(name, value) for name, values in VALUES.items() for value in values]
    found = combinations(settings, together)
    return {combination for combination in found if len(dict(combination)) == together}


def covering(
    wanted: set[Combination], accepts: Callable[[Choice], bool] = allowed, seed: int = 0
) -> Iterator[dict[str, Any]]:
    """Return runs that together have the wanted combinations (of one or two values).

    Combinations that no accepted run has are left out.
    """
    draws, open_ = random.Random(seed), set(wanted)
    for combination in sorted(wanted, key=repr):
        if combination not in open_:
            continue
        strategies = draws.sample(VALUES["strategy"], len(VALUES["strategy"]))
        starts = (
            {**help_, "strategy": strategy, **dict(combination)}
            for help_ in HELPS
            for strategy in strategies
        )
        start = next(filter(accepts, starts), None)
        if start is not None:
            run = _extended(start, open_, draws, accepts)
            open_ -= combinations_in(run)
            yield run


def combinations_in(chosen: Choice) -> set[Combination]:
    """Return the combinations of one and of two values in a run."""
    settings = [(name, chosen.get(name, values[0])) for name, values in VALUES.items()]
    return {*combinations(settings, 1), *combinations(settings, 2)}


def _extended(
    chosen: dict[str, Any],
    open_: set[Combination],
    draws: random.Random,
    accepts: Callable[[Choice], bool],
) -> dict[str, Any]:
    """Return the run with more options set, so that it has many combinations not covered yet."""
    for name in draws.sample(list(VALUES), len(VALUES)):
        if name not in chosen:
            fits = [chosen | {name: value} for value in VALUES[name]]
            fits = [candidate for candidate in fits if accepts(candidate)]
            chosen = max(
                fits,
                key=lambda candidate: len(combinations_in(candidate) & open_),
                default=chosen,
            )
    return chosen
