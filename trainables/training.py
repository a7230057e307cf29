"""How a trial trains: the options under `training` in a spec, or `training.NAME` as a parameter.

Each is a word, a number or a flag, so each can be searched. What excludes what is said in
combinations.py; docs/training.md says when to use which.
"""

import math
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import ClassVar, Literal, get_args

Strategy = Literal["single", "ddp", "fsdp", "zero1", "tensor", "pipeline", "local_sgd", "deepspeed"]
Init = Literal["ours", "none"]
Precision = Literal["32-true", "bf16-mixed", "16-mixed", "64-true", "bf16-true", "16-true"]
Compression = Literal["none", "fp16", "bf16", "powersgd"]
PipelineSchedule = Literal["gpipe", "1f1b", "interleaved"]
Attention = Literal["auto", "flash", "efficient", "math", "cudnn"]
Compiler = Literal["none", "inductor", "aot_eager"]
Optimizer = Literal["task", "adamw", "sgd", "lars", "lamb", "adafactor"]
Schedule = Literal[
    "task", "constant", "linear", "cosine", "one_cycle", "polynomial", "wsd", "plateau"
]
LrScaling = Literal["none", "linear", "sqrt"]
ClipBy = Literal["norm", "value", "adaptive"]

WORDS: dict[str, tuple[str, ...]] = {
    "strategy": get_args(Strategy),
    "init": get_args(Init),
    "precision": get_args(Precision),
    "compress": get_args(Compression),
    "pipeline_schedule": get_args(PipelineSchedule),
    "attention": get_args(Attention),
    "compile": get_args(Compiler),
    "optimizer": get_args(Optimizer),
    "schedule": get_args(Schedule),
    "lr_scaling": get_args(LrScaling),
    "clip_by": get_args(ClipBy),
}
LEAST = {  # of whole numbers
    "batched": 1,
    "tensor_ranks": 1,
    "zero_stage": 1,
    "average_every": 1,
    "accumulate": 1,
    "recompute": 0,
    "lr_batch": 1,
    "watch": 0,
}
MOST = {"zero_stage": 3}  # of whole numbers; of others there is no limit
BETWEEN = {  # of numbers: above the first, at most the second
    "bucket_mb": (0.0, math.inf),
    "memory_fraction": (0.0, 1.0),
    "layer_decay": (0.0, 1.0),
    "clip": (0.0, math.inf),
    "ema": (0.0, 1.0),
}
AT_ONCE = 32  # trials, for `batched: true` where the sweep does not say how many
SHARES = {"weight_decay": math.inf, "momentum": 1.0, "warmup": 1.0}  # from 0, below these


@dataclass(frozen=True)
class Training:
    """Options of the training runtime; a Task obeys them, a function trainable may read them."""

    # How ranks share the model
    strategy: Strategy = "single"
    precision: Precision = "32-true"  # Lightning's names: -true stores so, -mixed computes so
    accumulate: int = 1  # micro-batches into which a rank splits its share of each batch
    init: Init = "ours"  # who makes the process group; none: a trainable that does it itself
    clip: float | None = None  # bound of the gradient; None: no clipping
    clip_by: ClipBy = "norm"  # what `clip` bounds: the whole norm, each value, each unit's share
    bucket_mb: float = 25.0  # ddp: gradients that travel together
    static_graph: bool = False  # ddp: every update uses the same parameters, in the same order
    sync_batchnorm: bool = False  # batch statistics over all ranks
    compress: Compression = "none"  # ddp: what gradients are rounded to on their way
    reshard: bool = True  # fsdp: weights are sharded between passes too (ZeRO-3, else ZeRO-2)
    offload: bool = False  # fsdp, deepspeed: parts and optimizer stay in the CPU's memory
    tensor_ranks: int = 1  # fsdp: ranks that split each layer, beside those that shard it
    pipeline_schedule: PipelineSchedule = "1f1b"
    zero_stage: int = 2  # deepspeed: 1 deals out moments, 2 gradients too, 3 weights too
    average_every: int = 8  # local_sgd: updates between averages of the weights

    # Numbers and memory
    tf32: bool = False  # matrix products of 32-bit numbers on tensor cores
    float32_modules: tuple[str, ...] = ()  # patterns of module names that compute in float32
    recompute: int = 0  # activations of every n-th block are computed again; 0: all are kept
    attention: Attention = "auto"  # kernel of scaled dot-product attention
    compile: Compiler = "none"  # torch.compile's backend
    memory_fraction: float = 1.0  # the share of the GPU's memory that a rank may take

    # Optimization
    optimizer: Optimizer = "task"  # task: what Task.build_optimizer says
    weight_decay: float = 0.01  # of weights, not of biases and norms; for optimizers but `task`
    momentum: float = 0.9  # of sgd and lars
    layer_decay: float = 1.0  # factor on the learning rate from a block to the one before it
    schedule: Schedule = "task"  # task: what Task.scale_lr says
    warmup: float = 0.0  # share of the trial in which the learning rate rises
    lr_scaling: LrScaling = "none"  # how the learning rate grows with batch / lr_batch
    lr_batch: int = 256  # the batch that the learning rate is meant for
    ema: float | None = None  # decay of the averaged weights that are evaluated; None: none

    # Company
    batched: int | bool = 1  # trials that train at once in one process; see trials_at_once

    # Watching
    watch: int = 0  # updates between looks at each layer's gradients and updates; 0: never
    deterministic: bool = False  # equal bits run after run, at the price of some speed
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        for field in fields(self):
            if problem := _problem(field.name, getattr(self, field.name)):
                raise ValueError(f"{field.name} is {getattr(self, field.name)!r}; {problem}")

    def trials_at_once(self, parallel: int | None = None, most: int | None = None) -> int:
        """How many trials train at once in one process: what `batched` comes to in a sweep.

        True stands for as many as the sweep has at the same time, else for AT_ONCE, and never for
        more than it has in all; false stands for one.

        Args:
            parallel: trials of the sweep at the same time; None: as many as there is room for.
            most: trials of the sweep in all; None: it does not say.
        """
        if self.batched is not True:
            return max(self.batched, 1)
        wanted = AT_ONCE if parallel is None else parallel
        return wanted if most is None else min(wanted, most)


def _problem(name: str, value: object) -> str:
    """What to give instead of a value; empty: it is fine."""
    if name in WORDS:
        return "" if value in WORDS[name] else _choose(value, WORDS[name])
    if name == "batched" and isinstance(value, bool):
        return ""
    if name in LEAST:
        if isinstance(value, bool) or not isinstance(value, int):
            return "give a whole number"
        most = MOST.get(name, math.inf)
        wanted = f"give {LEAST[name]}" + (f" to {most}" if most < math.inf else " or more")
        return "" if LEAST[name] <= value <= most else wanted
    if name in ("clip", "ema") and value is None:
        return ""
    if name in BETWEEN or name in SHARES:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return "give a number"
        return _bounds(name, value)
    return ""


def _bounds(name: str, value: float) -> str:
    if name in SHARES:
        most = SHARES[name]
        return "" if 0 <= value < most else f"give 0 or more{_below(most)}"
    least, most = BETWEEN[name]
    fits = least < value < math.inf and value <= most
    return "" if fits else f"give more than {least:g}" + (f", at most {most:g}" * (most < math.inf))


def _below(most: float) -> str:
    return f", below {most:g}" if most < math.inf else ""


def _choose(value: object, words: tuple[str, ...]) -> str:
    near = get_close_matches(str(value), words, n=1)
    hint = f" ({near[0]}?)" if near else ""
    return f"choose one of {', '.join(words)}{hint}"
