"""Forecasts of the memory of a rank under each strategy for sharing a model among ranks."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from math import ceil
from typing import TYPE_CHECKING

from trainables import combinations
from trainables.data import Data
from trainables.memory_estimation.fake_step import run_fake_step
from trainables.memory_estimation.memory_tracker import CannotForecast, MemoryBreakdown
from trainables.memory_estimation.meta_model import example_batch, stored_bytes
from trainables.memory_estimation.vmapped import run_fake_vmapped_step
from trainables.training import Training

if TYPE_CHECKING:
    from trainables.task import Task

# Options that belong to some strategies only; they are reset for the others.
OWN = (
    *(
        "bucket_cap_mb",
        "static_graph",
        "gradient_compression",
        "sync_batchnorm",
        "reshard_after_forward",
        "cpu_offload",
    ),
    *("shard_ranks", "tensor_parallel", "pipeline_schedule", "zero_stage", "sync_every"),
    "trials_per_process",
)
WORKSPACE = 32 * 2**20  # bytes of torch's memory that cuBLAS takes on an H100; elsewhere 8 MiB
CONTEXT = 600 * 10**6  # bytes of a GPU that CUDA takes per process, beside torch's; roughly
BUCKET = 4 * 50_000_000  # bytes of DeepSpeed's gradient buffer, see parallel/deepspeed.py
LIVE = 4 * 1_000_000_000  # bytes of weights that DeepSpeed's stage 3 keeps gathered (its default)
Steps = dict[tuple[Training, int, int], MemoryBreakdown]  # by options, ranks and micro-batch
ALONE = ("single", "tensor")  # strategies whose ranks all see the whole batch


@dataclass(frozen=True)
class Variant:
    """A way to train: a strategy with its options on a number of ranks."""

    name: str  # as tables show it
    training: Training
    ranks: int
    chosen: bool = False  # whether it is the spec's own


@dataclass(frozen=True)
class Forecast:
    """Bytes on the rank that needs the most memory."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int  # of one micro-batch, between its forward and its backward pass
    other: int  # buffers, samples on a GPU, buckets of gradients, workspaces
    peak: int  # at the fullest moment
    fullest: str  # the phase of that moment
    micro_batch: int  # samples
    host: int = 0  # offloaded to the CPU's memory
    exact: bool = True  # by tracking each operation; else by a formula

    def fits(self, memory: int) -> bool:
        """Return whether a GPU of `memory` bytes holds the peak and CUDA's own context."""
        return self.peak + CONTEXT <= memory


def variants(training: Training, ranks: int) -> list[Variant]:
    """Return the spec's own way to train, and others to compare on as many ranks (2 or more)."""
    plain, several = without_strategy_options(training), max(ranks, 2)
    ways = {
        "single": {"strategy": "single"},
        "ddp": {"strategy": "ddp"},
        "zero1": {"strategy": "zero1"},
        "fsdp, reshard_after_forward: false": {"strategy": "fsdp", "reshard_after_forward": False},
        "fsdp": {"strategy": "fsdp"},
        "fsdp, cpu_offload": {"strategy": "fsdp", "cpu_offload": True},
        "tensor": {"strategy": "tensor"},
        "local_sgd": {"strategy": "local_sgd"},
        **{
            f"deepspeed, zero_stage: {stage}": {"strategy": "deepspeed", "zero_stage": stage}
            for stage in (1, 2, 3)
        },
    }
    choices = []
    for name, options in ways.items():
        candidate = replace(plain, **options)  # type: ignore[arg-type]  # each is of its option's kind
        rank_count = 1 if name == "single" else several
        choices.append(
            Variant(name, candidate, rank_count, (candidate, rank_count) == (training, ranks))
        )
    if not any(variant.chosen for variant in choices):
        choices.insert(0, Variant(describe_strategy(training), training, ranks, True))
    return choices


def without_strategy_options(training: Training) -> Training:
    """Return the options with those that only some strategies have set to their defaults."""
    return replace(training, **{name: getattr(Training(), name) for name in OWN})


def adapted_to_ranks(training: Training, ranks: int) -> Training:
    """Return the options, adapted to a number of ranks that differs from the spec's."""
    if ranks == 1:
        return replace(
            without_strategy_options(training),
            strategy="single",
            trials_per_process=training.trials_per_process,
        )
    strategy = "ddp" if training.strategy == "single" else training.strategy
    return replace(training, strategy=strategy, trials_per_process=1)


def describe_strategy(training: Training) -> str:
    """Return the strategy's name with those of its options that differ from their defaults."""
    default = Training()
    options = [
        f"{field.name}: {str(getattr(training, field.name)).lower()}"
        for field in fields(Training)
        if field.name in OWN and getattr(training, field.name) != getattr(default, field.name)
    ]
    return ", ".join([training.strategy, *options])


def make_forecast(
    task: "Task", data: Data, variant: Variant, gpu: bool, steps: Steps | None = None
) -> Forecast:
    """Forecast the memory of the fullest rank.

    Args:
        data: the task's.
        gpu: whether to forecast the memory of a GPU, or that of a process without a GPU.
        steps: of this task and `gpu`; variants that differ only in offloading, or in DeepSpeed's
            stages, share one.

    Raises:
        CannotForecast: the task reads values of tensors, which a forecast does not have.
        ValueError: options exclude each other, or the strategy does not support the model.
    """
    training, ranks = variant.training, variant.ranks
    if reasons := list(_refusals(training, ranks, gpu)):
        raise ValueError(reasons[0])
    micro = micro_batch(task.batch, training, ranks)
    batch = example_batch(data, micro, training)
    steps = {} if steps is None else steps

    def step(training: Training, ranks: int) -> MemoryBreakdown:
        key = (training, ranks, micro)
        if key not in steps:
            steps[key] = run_fake_step(task, training, ranks, batch, gpu)
        return steps[key]

    exact = training.strategy != "deepspeed"
    if training.trials_at_once() > 1:
        course = run_fake_vmapped_step(task, training, data, batch, gpu)
    elif exact:
        course = step(replace(training, cpu_offload=False), ranks)
    else:
        one_rank = step(replace(without_strategy_options(training), strategy="single"), 1)
        course = deepspeed_breakdown(one_rank, training, ranks, gpu)
    besides = stored_bytes(data) + WORKSPACE if gpu else 0
    forecast = Forecast(
        course.parameters,
        course.gradients,
        course.optimizer,
        course.activations,
        course.buffers + course.exchange + besides,
        course.peak + besides,
        course.fullest,
        micro,
        exact=exact,
    )
    if not training.cpu_offload:
        return forecast
    stages_1_and_2 = training.strategy == "deepspeed" and training.zero_stage < 3
    return (
        replace(forecast, host=deepspeed_host_bytes(one_rank, ranks))
        if stages_1_and_2
        else offloaded(forecast)
    )


def micro_batch(batch: int, training: Training, ranks: int) -> int:
    """Return the number of samples in the largest micro-batch of a rank."""
    places = 1 if training.strategy in ALONE else ranks // training.tensor_parallel
    return ceil(ceil(batch / places) / training.accumulate)


def offloaded(whole: Forecast) -> Forecast:
    """Return the forecast with sharded weights, gradients and optimizer in the CPU's memory.

    Gradients move there one after the other, so some still count as on the GPU.
    """
    offloaded_bytes = whole.parameters + whole.optimizer
    return replace(
        whole,
        parameters=0,
        gradients=0,
        optimizer=0,
        peak=whole.peak - offloaded_bytes,
        host=offloaded_bytes + whole.gradients,
    )


def deepspeed_host_bytes(whole: MemoryBreakdown, ranks: int) -> int:
    """Return the bytes of the CPU's memory that DeepSpeed's offload takes at stages 1 and 2.

    For its share of the weights a rank keeps there the copy that is updated, the copy sent to the
    GPU, the gradients, and the optimizer's state; the weights themselves stay on the GPU.
    Source: Ren et al., ZeRO-Offload (2021), section 4.1, and DeepSpeed 0.19.8.
    """
    return 3 * whole.gradients // ranks + whole.optimizer // ranks


def deepspeed_breakdown(
    whole: MemoryBreakdown, training: Training, ranks: int, gpu: bool
) -> MemoryBreakdown:
    """Compute DeepSpeed's memory by a formula from that of one rank with the whole weights.

    Each rank updates a flat 32-bit copy of its share of the weights. Stage 1 shards these copies
    and the optimizer's state, stage 2 also the gradients, stage 3 also the weights except those
    kept gathered. On a CPU the gradient buffer of stages 1 and 2 is hardly written to. With
    offload at stages 1 and 2, copies and state are on the host, and gradients leave with their
    buffer; at stage 1 gradients of other ranks' shares stay until the update.
    Source: Rajbhandari et al., ZeRO (2020), section 5.
    """
    stage, elsewhere = training.zero_stage, training.cpu_offload and training.zero_stage < 3
    copy, optimizer = whole.gradients // ranks, whole.optimizer // ranks
    gradients = whole.gradients if stage == 1 else copy
    if elsewhere:
        gradients = whole.gradients if stage == 1 else 0
        copy = optimizer = 0
    parameters = (whole.parameters // ranks if stage == 3 else whole.parameters) + copy
    exchange = BUCKET if gpu or stage == 3 else 0
    if stage == 3:
        exchange += min(whole.parameters, LIVE)
    peak = parameters + optimizer + gradients + whole.activations + whole.buffers + exchange
    return replace(
        whole,
        parameters=parameters,
        gradients=gradients,
        optimizer=optimizer,
        exchange=exchange,
        peak=peak,
        fullest="backward",
    )


def _refusals(training: Training, ranks: int, gpu: bool) -> Iterator[str]:
    for option, reason in combinations.refusals(training, ranks):
        yield f"training.{option} {reason}"
    if training.cpu_offload and not gpu:
        yield "training.cpu_offload is true, but there is no GPU; leave it out"
    if training.strategy == "pipeline":
        yield "a pipeline has no forecast; measure it: hposvc memory SPEC --measure"


__all__ = ["CONTEXT", "CannotForecast", "Forecast", "Variant", "make_forecast", "variants"]
