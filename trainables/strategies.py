"""The strategies by which ranks share the work of one model, and what others need to know of each.

A new strategy takes a class, like those of trainables/parallel/, a row here, and its section in
docs/reference/training-reference.md or docs/advanced/strategies.md. Imports no torch: `validate`
reads this too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# What an optimizer of a task may do: see OPTIMIZER_KINDS in trainer/fit.py.
OptimizerKind = Literal["several", "turns", "evaluation_weights", "muon"]


@dataclass(frozen=True)
class Refusal:
    """Values of a training option that a strategy cannot obey."""

    option: str
    reason: str  # completes "training.OPTION is VALUE, but ..."
    values: tuple[object, ...] = ()  # empty: all but the option's default


@dataclass(frozen=True)
class StrategyType:
    """A strategy's class, and what the rest of the code needs to know of it."""

    strategy_class: str  # "module:Class"; only the trial's own is imported
    several_ranks: bool = True
    # Training options that not all strategies have, and why the others lack them.
    options: Mapping[str, str] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()  # of values of other options
    no_rollback: str = ""  # why failure.nan cannot be rollback; empty: it can
    unsuited_optimizers: tuple[OptimizerKind, ...] = ()
    data_parallel: bool = True  # ranks have samples of their own, or groups of `tensor_parallel`
    whole_model: bool = True  # each rank holds all weights
    gathers_blocks: bool = False  # a rank gathers the weights of each block when it is called
    stages: bool = False  # ranks have different layers, so no rank calls the model as a whole
    equal_shares: bool = True  # what a rank keeps of a block is the same for all equal blocks
    averages_weights: bool = False  # in place of gradients
    full_state_on_rank_0: bool = True  # which then writes checkpoints alone
    # Options of each way of using it that forecasts compare, by what the way's name adds.
    ways: Mapping[str, Mapping[str, object]] = field(default_factory=lambda: {"": {}})
    # "module:function" that computes a rank's memory from that of one rank with the whole model;
    # empty: found by running a step on tensors without data.
    memory_formula: str = ""


WHOLE_MODEL = {
    "compile": "the others change how a model's parts are called",
    "float32_modules": "the others choose precision by block, or for the whole model",
}
SYNC_BATCHNORM = {"sync_batchnorm": "only ranks that share each batch can"}
CPU_OFFLOAD = {"cpu_offload": "only they can keep shards in the CPU's memory"}
DDP = {
    "bucket_cap_mb": "only DDP sends gradients in buckets",
    "static_graph": "only DDP learns the order of gradients",
    "gradient_compression": "only DDP's gradients can be compressed",
}
ADAFACTOR = Refusal(
    "optimizer",
    "it cannot train weights that ranks share; choose adamw, sgd, lars or lamb",
    ("adafactor",),
)
MUON = Refusal(
    "optimizer",
    "its iteration in bfloat16 rounds differently over parts of matrices (losses 1e-4 off), and a "
    "rank of a pipeline does not know the model's last layer; choose adamw, ddp or zero1",
    ("muon",),
)

STRATEGIES: Mapping[str, StrategyType] = {
    "single": StrategyType(
        "trainables.parallel.strategy:Strategy", several_ranks=False, options=WHOLE_MODEL
    ),
    "ddp": StrategyType(
        "trainables.parallel.ddp:Ddp", options={**DDP, **SYNC_BATCHNORM, **WHOLE_MODEL}
    ),
    "zero1": StrategyType(
        "trainables.parallel.zero1:Zero1",
        options={**DDP, **SYNC_BATCHNORM, **WHOLE_MODEL},
        unsuited_optimizers=("evaluation_weights",),  # a rank has those of its share only
        equal_shares=False,  # each weight is dealt to one rank as a whole
        full_state_on_rank_0=False,
    ),
    "fsdp": StrategyType(
        "trainables.parallel.fsdp:Fsdp",
        options={
            **SYNC_BATCHNORM,
            "reshard_after_forward": "only fsdp shards weights",
            **CPU_OFFLOAD,
            "shard_ranks": "only fsdp shards weights over a part of the ranks",
            "tensor_parallel": "only fsdp has a second dimension of ranks",
            "compile": WHOLE_MODEL["compile"],
        },
        refusals=(ADAFACTOR, MUON),
        unsuited_optimizers=("turns", "muon"),
        whole_model=False,
        gathers_blocks=True,
        full_state_on_rank_0=False,
        ways={
            "reshard_after_forward: false": {"reshard_after_forward": False},
            "": {},
            "cpu_offload": {"cpu_offload": True},
        },
    ),
    "tensor": StrategyType(
        "trainables.parallel.tensor:TensorParallel",
        refusals=(ADAFACTOR, MUON),
        unsuited_optimizers=("turns", "muon"),
        data_parallel=False,
        whole_model=False,
        full_state_on_rank_0=False,
    ),
    "pipeline": StrategyType(
        "trainables.parallel.pipeline:Pipeline",
        options={"pipeline_schedule": "only a pipeline has stages"},
        refusals=(
            Refusal(
                "clip_by",
                "it leaves the model's last layer alone, and a stage of a pipeline has a last "
                "layer of its own; choose norm or value",
                ("adaptive",),
            ),
            Refusal(
                "layer_decay",
                "a rank of a pipeline does not know how deep in the model its layers are; leave it "
                "out",
            ),
            Refusal(
                "log_layers_every",
                "rank 0 of a pipeline, whose reports count, sees its own layers only; leave it out",
            ),
            MUON,
        ),
        unsuited_optimizers=("turns",),
        data_parallel=False,
        whole_model=False,
        stages=True,
        full_state_on_rank_0=False,
        ways={},
    ),
    "local_sgd": StrategyType(
        "trainables.parallel.local_sgd:LocalSgd",
        options={"sync_every": "only local_sgd averages weights", **WHOLE_MODEL},
        no_rollback="ranks of local_sgd judge their updates alone, and cannot go back alone; set "
        "it to skip or stop, or choose the strategy ddp",
        unsuited_optimizers=("turns",),
        averages_weights=True,
    ),
    "deepspeed": StrategyType(
        "trainables.parallel.deepspeed:DeepSpeed",
        options={"zero_stage": "only deepspeed has stages", **CPU_OFFLOAD},
        refusals=(
            Refusal(
                "precision",
                "deepspeed's flat weights are in 32 bits, and their scale its own; choose 32-true "
                "or bf16-mixed, or the strategy fsdp",
                ("64-true", "16-mixed", "bf16-true", "16-true"),
            ),
            Refusal(
                "clip_by",
                "deepspeed's gradients are flat parts; choose norm, or the strategy fsdp",
            ),
            Refusal(
                "optimizer",
                "it looks at whole weights, and deepspeed's are flat parts; choose adamw or sgd, "
                "or the strategy fsdp",
                ("lars", "lamb", "adafactor", "muon"),
            ),
            Refusal(
                "ema",
                "deepspeed's weights are flat parts, which are not averaged; choose the strategy "
                "fsdp",
            ),
            Refusal(
                "log_layers_every",
                "deepspeed's gradients are flat parts, and belong to no layer; choose the strategy "
                "fsdp",
            ),
        ),
        no_rollback="deepspeed loads weights only when an order begins; set it to skip or stop, or "
        "choose the strategy fsdp",
        unsuited_optimizers=("several", "turns", "evaluation_weights", "muon"),
        whole_model=False,
        ways={f"zero_stage: {stage}": {"zero_stage": stage} for stage in (1, 2, 3)},
        memory_formula="trainables.memory_estimation.deepspeed:estimate_memory",
    ),
}


def default_strategy(workers: int) -> str:
    """Return the strategy of a trial that names none."""
    return "ddp" if workers > 1 else "single"
