"""Options of training: `training` in a spec, or `training.NAME` as a parameter.

Each is a word, a number or a flag, so each can be searched. combinations.py says which of them
exclude each other; the page `training-reference` says when to use which.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, ClassVar, Literal, get_args, get_origin

from trainables.strategies import STRATEGIES, StrategyType

if TYPE_CHECKING:
    Strategy = str
else:
    Strategy = Literal[*STRATEGIES]  # a spec's schema lists them
ProcessGroup = Literal["managed", "user"]
Precision = Literal["32-true", "bf16-mixed", "16-mixed", "64-true", "bf16-true", "16-true"]
Compression = Literal["none", "fp16", "bf16", "powersgd"]
PipelineSchedule = Literal["gpipe", "1f1b", "interleaved"]
Attention = Literal["auto", "flash", "efficient", "math", "cudnn"]
Compiler = Literal["none", "inductor", "aot_eager"]
Optimizer = Literal["task", "adamw", "sgd", "lars", "lamb", "adafactor", "muon"]
Schedule = Literal[
    "task", "constant", "linear", "cosine", "one_cycle", "polynomial", "wsd", "plateau"
]
LrScaling = Literal["none", "linear", "sqrt"]
ClipBy = Literal["norm", "value", "adaptive"]

LEAST = {  # minima of integer options
    "trials_per_process": 1,
    "shard_ranks": 0,
    "tensor_parallel": 1,
    "zero_stage": 1,
    "sync_every": 1,
    "accumulate": 1,
    "activation_checkpointing": 0,
    "lr_base_batch": 1,
    "log_layers_every": 0,
}
MOST = {"zero_stage": 3}  # maxima of integer options; others have no limit
BETWEEN = {  # bounds of real options: above the first, at most the second
    "bucket_cap_mb": (0.0, math.inf),
    "memory_fraction": (0.0, 1.0),
    "layer_decay": (0.0, 1.0),
    "clip": (0.0, math.inf),
    "ema": (0.0, 1.0),
}
AT_ONCE = 32  # trials, for `trials_per_process: true` where `trials.parallel` is auto
SHARES = {"weight_decay": math.inf, "momentum": 1.0, "warmup": 1.0}  # from 0 to below these


@dataclass(frozen=True)
class Training:
    """Options of the training runtime; Tasks follow them, function trainables may read them."""

    # How ranks share the model
    strategy: Strategy = "single"
    precision: Precision = (
        "32-true"  # Lightning's names: -true is also stored so, -mixed only computed
    )
    accumulate: int = 1  # micro-batches into which a rank splits its share of each batch
    process_group: ProcessGroup = "managed"  # made by the runtime; user: by the trainable itself
    clip: float | None = None  # bound of the gradient; None: no clipping
    clip_by: ClipBy = "norm"  # `clip` bounds the total norm, each value, or each unit's ratio
    bucket_cap_mb: float = 25.0  # ddp: size of the buckets in which gradients are sent
    static_graph: bool = False  # ddp: every update uses the same parameters, in the same order
    sync_batchnorm: bool = False  # batch statistics over all ranks
    gradient_compression: Compression = "none"  # ddp: the format of gradients while they are sent
    reshard_after_forward: bool = True  # fsdp: weights are sharded between passes too (ZeRO-3)
    cpu_offload: bool = False  # fsdp, deepspeed: shards and optimizer stay in the CPU's memory
    shard_ranks: int = 0  # fsdp: neighbouring ranks that share a copy of the weights; 0: all ranks
    tensor_parallel: int = 1  # fsdp: ranks that split each layer, beside those that shard it
    pipeline_schedule: PipelineSchedule = "1f1b"
    zero_stage: int = 2  # deepspeed: 1 shards the optimizer's state, 2 also gradients, 3 weights
    sync_every: int = 8  # local_sgd: updates between averages of the weights

    # Numbers and memory
    tf32: bool = False  # matrix products of 32-bit numbers on tensor cores
    float32_modules: tuple[str, ...] = ()  # patterns of module names that compute in float32
    activation_checkpointing: int = (
        0  # activations of every n-th block are recomputed; 0: all are kept
    )
    attention: Attention = "auto"  # kernel of scaled dot-product attention
    compile: Compiler = "none"  # torch.compile's backend
    memory_fraction: float = 1.0  # the share of the GPU's memory that a rank may take

    # Optimization
    optimizer: Optimizer = "task"  # task: the one of Task.build_optimizer
    weight_decay: float = 0.01  # of weights, not of biases and norms; for optimizers but `task`
    momentum: float = 0.9  # of sgd and lars
    layer_decay: float = 1.0  # factor on the learning rate from a block to the one before it
    schedule: Schedule = "task"  # task: the factors of Task.scale_lr
    warmup: float = 0.0  # share of the trial in which the learning rate rises
    lr_scaling: LrScaling = "none"  # how the learning rate grows with batch / lr_base_batch
    lr_base_batch: int = 256  # the batch size for which the learning rate is given
    ema: float | None = None  # decay of averaged weights, which are evaluated; None: no average

    # Several trials in one process
    trials_per_process: int | bool = 1  # trials training at once in one process; see trials_at_once

    # Monitoring
    log_layers_every: int = 0  # updates between logs of each layer's gradients; 0: never
    deterministic: bool = False  # bitwise equal results in every run, at the price of some speed
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        for field in fields(self):
            if problem := _problem(field.name, getattr(self, field.name)):
                raise ValueError(f"{field.name} is {getattr(self, field.name)!r}; {problem}")

    @property
    def traits(self) -> StrategyType:
        """Return what holds for the strategy on several ranks."""
        return STRATEGIES[self.strategy]

    def dp_size(self, ranks: int) -> int:
        """Return the number of shares into which so many ranks split each batch."""
        return ranks // self.tensor_parallel if self.traits.data_parallel else 1

    def trials_at_once(self, parallel: int | None = None, most: int | None = None) -> int:
        """Return how many trials train at once in one process, as `trials_per_process` says.

        True means as many as the sweep runs in parallel, else AT_ONCE, and never more than the
        sweep has in all; false means 1.

        Args:
            parallel: trials that the sweep runs in parallel; None: as many as resources allow.
            most: trials of the sweep in all; None: unlimited.
        """
        if self.trials_per_process is not True:
            return max(self.trials_per_process, 1)
        parallel_trials = AT_ONCE if parallel is None else parallel
        return parallel_trials if most is None else min(parallel_trials, most)


# The words of each option that takes one; those of `strategy` grow with the mapping.
WORDS: Mapping[str, Collection[str]] = {
    **{
        field.name: get_args(field.type)
        for field in fields(Training)
        if get_origin(field.type) is Literal
    },
    "strategy": STRATEGIES.keys(),
}


def _problem(name: str, value: object) -> str:
    """Return advice on what to give instead of an invalid value; empty if it is valid."""
    if name in WORDS:
        matches = get_close_matches(str(value), WORDS[name], n=1)
        hint = f" ({matches[0]}?)" if matches else ""
        return "" if value in WORDS[name] else f"choose one of {', '.join(WORDS[name])}{hint}"
    if name == "trials_per_process" and isinstance(value, bool):
        return ""
    if name in LEAST:
        if isinstance(value, bool) or not isinstance(value, int):
            return "give a whole number"
        upper = MOST.get(name, math.inf)
        range_ = f"give {LEAST[name]}" + (f" to {upper}" if upper < math.inf else " or more")
        return "" if LEAST[name] <= value <= upper else range_
    if name in ("clip", "ema") and value is None:
        return ""
    if name in BETWEEN or name in SHARES:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return "give a number"
        return _bounds(name, value)
    return ""


def _bounds(name: str, value: float) -> str:
    if name in SHARES:
        upper = SHARES[name]
        below = f", below {upper:g}" if upper < math.inf else ""
        return "" if 0 <= value < upper else f"give 0 or more{below}"
    lower, upper = BETWEEN[name]
    fits = lower < value < math.inf and value <= upper
    return (
        "" if fits else f"give more than {lower:g}" + (f", at most {upper:g}" * (upper < math.inf))
    )
