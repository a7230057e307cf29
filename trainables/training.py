"""Options of training: `training` in a spec, or `training.NAME` as a parameter.

Each is a word, a number or a flag, so each can be searched. combinations.py says which of them
exclude each other; the page `training-reference` says when to use which.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    get_args,
    get_origin,
    get_type_hints,
)

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

# Options of the process, so that trials that take turns in one have the same.
OF_PROCESS = ("tf32", "deterministic", "attention", "memory_fraction", "strategy")
AT_ONCE = 32  # trials, for `trials_per_process: true` where `trials.parallel` is auto


@dataclass(frozen=True)
class Whole:
    """The whole numbers that an option takes; the most may be far above what anybody needs."""

    least: int
    most: int = 10**9

    def advice(self, value: object) -> str:
        """Return what to give instead of an invalid value; empty: it is valid."""
        if isinstance(value, bool) or not isinstance(value, int):
            return "give a whole number"
        if value < self.least:
            return f"give {self.least} or more"
        return "" if value <= self.most else f"give {self.least} to {self.most:,}"

    def __get_pydantic_json_schema__(
        self, core: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        return {**handler(core), "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True)
class Real:
    """The numbers from 0 to `most` that an option takes, of which one end is left out."""

    most: float
    above_0: bool = True  # False: below `most`

    def advice(self, value: object) -> str:
        """Return what to give instead of an invalid value; empty: it is valid."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return "give a number"
        if self.above_0 and 0 < value <= self.most and value < math.inf:
            return ""
        if not self.above_0 and 0 <= value < self.most:
            return ""
        lower, upper = ("more than 0", "at most") if self.above_0 else ("0 or more", "below")
        return f"give {lower}" + f", {upper} {self.most:g}" * (self.most < math.inf)

    def __get_pydantic_json_schema__(
        self, core: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        return {**handler(core), **({"maximum": self.most} if self.most < math.inf else {})}


Factor = Annotated[float, Real(1.0)]
Fraction = Annotated[float, Real(1.0, above_0=False)]


@dataclass(frozen=True)
class Training:
    """Options of the training runtime; Tasks follow them, function trainables may read them."""

    # How ranks share the model
    strategy: Strategy = "single"
    precision: Precision = (
        "32-true"  # Lightning's names: -true is also stored so, -mixed only computed
    )
    # Micro-batches into which a rank splits its share of each batch.
    accumulate: Annotated[int, Whole(1, 10**5)] = 1
    process_group: ProcessGroup = "managed"  # made by the runtime; user: by the trainable itself
    # Bound of the gradient; None: no clipping.
    clip: Annotated[float, Real(math.inf)] | None = None
    clip_by: ClipBy = "norm"  # `clip` bounds the total norm, each value, or each unit's ratio
    # ddp: size of the buckets in which gradients are sent.
    bucket_cap_mb: Annotated[float, Real(1e12)] = 25.0
    static_graph: bool = False  # ddp: every update uses the same parameters, in the same order
    sync_batchnorm: bool = False  # batch statistics over all ranks
    gradient_compression: Compression = "none"  # ddp: the format of gradients while they are sent
    reshard_after_forward: bool = True  # fsdp: weights are sharded between passes too (ZeRO-3)
    cpu_offload: bool = False  # fsdp, deepspeed: shards and optimizer stay in the CPU's memory
    # fsdp: neighbouring ranks that share a copy of the weights; 0: all ranks.
    shard_ranks: Annotated[int, Whole(0, 10**5)] = 0
    # fsdp: ranks that split each layer, beside those that shard it.
    tensor_parallel: Annotated[int, Whole(1, 10**5)] = 1
    pipeline_schedule: PipelineSchedule = "1f1b"
    # deepspeed: 1 shards the optimizer's state, 2 also gradients, 3 weights.
    zero_stage: Annotated[int, Whole(1, 3)] = 2
    sync_every: Annotated[int, Whole(1)] = 8  # local_sgd: updates between averages of the weights

    # Numbers and memory
    tf32: bool = False  # matrix products of 32-bit numbers on tensor cores
    float32_modules: tuple[str, ...] = ()  # patterns of module names that compute in float32
    # Activations of every n-th block are recomputed; 0: all are kept.
    activation_checkpointing: Annotated[int, Whole(0)] = 0
    attention: Attention = "auto"  # kernel of scaled dot-product attention
    compile: Compiler = "none"  # torch.compile's backend
    memory_fraction: Factor = 1.0  # the share of the GPU's memory that a rank may take

    # Optimization
    optimizer: Optimizer = "task"  # task: the one of Task.build_optimizer
    # Of weights, not of biases and norms; for optimizers but `task`.
    weight_decay: Annotated[float, Real(math.inf, above_0=False)] = 0.01
    momentum: Fraction = 0.9  # of sgd and lars
    layer_decay: Factor = 1.0  # factor on the learning rate from a block to the one before it
    schedule: Schedule = "task"  # task: the factors of Task.scale_lr
    # Share of the trial in which the learning rate rises.
    warmup: Fraction = 0.0
    lr_scaling: LrScaling = "none"  # how the learning rate grows with batch / lr_base_batch
    # The batch size for which the learning rate is given.
    lr_base_batch: Annotated[int, Whole(1)] = 256
    # Tokens of a trial for each weight of its model; None: as fidelity says.
    tokens_per_weight: Annotated[float, Real(1e9)] | None = None
    ema: Factor | None = None  # decay of averaged weights, which are evaluated; None: no average

    # Several trials in one process
    # Trials training at once in one process; see trials_at_once.
    trials_per_process: Annotated[int, Whole(1, 10**5)] | bool = 1
    # Trials that take turns in one process, with one copy of their frozen weights.
    share_base: Annotated[int, Whole(1, 1000)] = 1
    joint_passes: bool = False  # their passes through these weights are made as one

    # Monitoring
    # Updates between logs of each layer's gradients; 0: never.
    log_layers_every: Annotated[int, Whole(0)] = 0
    deterministic: bool = False  # bitwise equal results in every run, at the price of some speed
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        for name, annotation in _annotations().items():
            value = getattr(self, name)
            if advice := _advice(annotation, value):
                raise ValueError(f"{name} is {value!r}; {advice}")

    @property
    def traits(self) -> StrategyType:
        """Return what holds for the strategy on several ranks."""
        return STRATEGIES[self.strategy]

    def dp_size(self, ranks: int) -> int:
        """Return the number of shares into which so many ranks split each batch."""
        return ranks // self.tensor_parallel if self.traits.data_parallel else 1

    @property
    def orders_at_once(self) -> int:
        """Return how many trials a process trains at a time; trials_per_process is a number."""
        return max(self.share_base, int(self.trials_per_process))

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


@cache
def _annotations() -> dict[str, Any]:
    """Return the types of all options, with what `Annotated` adds to them."""
    hints = get_type_hints(Training, include_extras=True)
    return {field.name: hints[field.name] for field in fields(Training)}


def _advice(annotation: Any, value: object) -> str:
    """Return what to give instead of an invalid value of an option; empty: it is valid."""
    kinds = (*STRATEGIES,) if annotation == Strategy else get_args(annotation)
    if get_origin(annotation) is Literal:
        matches = get_close_matches(str(value), kinds, n=1)
        hint = f" ({matches[0]}?)" if matches else ""
        return "" if value in kinds else f"choose one of {', '.join(kinds)}{hint}"
    if type(value) in kinds and type(value) in (bool, NoneType):
        return ""
    parts = [part for kind in kinds for part in (kind, *get_args(kind))]
    rules = (part for part in parts if isinstance(part, Whole | Real))
    return next((rule.advice(value) for rule in rules), "")
