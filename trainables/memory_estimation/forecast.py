"""Forecasts of the memory of a rank under each strategy for sharing a model among ranks."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from math import ceil
from pkgutil import resolve_name

from trainables import combinations
from trainables.data import Data
from trainables.memory_estimation.fake_step import run_fake_step
from trainables.memory_estimation.memory_tracker import CannotForecast, MemoryBreakdown
from trainables.memory_estimation.meta_model import example_batch, stored_bytes
from trainables.memory_estimation.vmapped import run_fake_vmapped_step
from trainables.strategies import STRATEGIES, default_strategy
from trainables.task import Task
from trainables.training import Training

WORKSPACE = 32 * 2**20  # bytes of torch's memory that cuBLAS takes on an H100; elsewhere 8 MiB
CONTEXT = 600 * 10**6  # bytes of a GPU that CUDA takes per process, beside torch's; roughly
Steps = dict[tuple[Training, int, int], MemoryBreakdown]  # by options, ranks and micro-batch


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
    plain, choices = without_strategy_options(training), []
    for strategy, traits in STRATEGIES.items():
        rank_count = max(ranks, 2) if traits.several_ranks else 1
        for addition, options in traits.ways.items():
            name = f"{strategy}, {addition}" if addition else strategy
            candidate = replace(plain, **{"strategy": strategy, **options})  # type: ignore[arg-type]
            chosen = (candidate, rank_count) == (training, ranks)
            choices.append(Variant(name, candidate, rank_count, chosen))
    if not any(variant.chosen for variant in choices):
        choices.insert(0, Variant(describe_strategy(training), training, ranks, True))
    return choices


def without_strategy_options(training: Training) -> Training:
    """Return the options with those that a single rank lacks set to their defaults."""
    return replace(training, **{name: getattr(Training(), name) for name in _options_of_ranks()})


def _options_of_ranks() -> set[str]:
    """Return the options that only some strategies have, and not that of a single rank."""
    options = {name for traits in STRATEGIES.values() for name in traits.options}
    return options - STRATEGIES[default_strategy(1)].options.keys() | {
        "trials_per_process",
        "share_base",
        "joint_passes",
    }


def adapted_to_ranks(training: Training, ranks: int) -> Training:
    """Return the options, adapted to a number of ranks that differs from the spec's."""
    if ranks == 1:
        return replace(
            without_strategy_options(training),
            strategy=default_strategy(1),
            trials_per_process=training.trials_per_process,
            share_base=training.share_base,
            joint_passes=training.joint_passes,
        )
    strategy = training.strategy if training.traits.several_ranks else default_strategy(ranks)
    return replace(training, strategy=strategy, trials_per_process=1, joint_passes=False)


def describe_strategy(training: Training) -> str:
    """Return the strategy's name with those of its options that differ from their defaults."""
    default, names = Training(), _options_of_ranks()
    options = [
        f"{field.name}: {str(getattr(training, field.name)).lower()}"
        for field in fields(Training)
        if field.name in names and getattr(training, field.name) != getattr(default, field.name)
    ]
    return ", ".join([training.strategy, *options])


def make_forecast(
    task: Task, data: Data, variant: Variant, gpu: bool, steps: Steps | None = None
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

    formula = training.traits.memory_formula
    if training.trials_at_once() > 1:
        course = run_fake_vmapped_step(task, training, data, batch, gpu)
    elif formula:
        one_rank = step(adapted_to_ranks(training, 1), 1)
        course = resolve_name(formula)(one_rank, training, ranks, gpu)
    else:
        course = step(replace(training, cpu_offload=False), ranks)
    if training.share_base > 1:
        course = beside_others(course, training.share_base - 1, training.joint_passes)
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
        host=course.host,
        exact=not formula,
    )
    return offloaded(forecast) if training.cpu_offload and not forecast.host else forecast


def beside_others(alone: MemoryBreakdown, others: int, joint: bool) -> MemoryBreakdown:
    """Return the memory of a trial beside others of its process, which share its frozen weights.

    Gradients take as much as the weights that are trained.

    Args:
        joint: whether all have activations at a time; otherwise one of them.
    """
    trained, activations = alone.gradients, alone.activations * joint
    own = trained + alone.gradients + alone.optimizer + alone.buffers + activations
    return replace(
        alone,
        parameters=alone.parameters + others * trained,
        gradients=alone.gradients * (1 + others),
        optimizer=alone.optimizer * (1 + others),
        buffers=alone.buffers * (1 + others),
        activations=alone.activations + others * activations,
        peak=alone.peak + others * own,
    )


def micro_batch(batch: int, training: Training, ranks: int) -> int:
    """Return the number of samples in the largest micro-batch of a rank."""
    return ceil(ceil(batch / training.dp_size(ranks)) / training.accumulate)


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


def _refusals(training: Training, ranks: int, gpu: bool) -> Iterator[str]:
    for option, reason in combinations.refusals(training, ranks):
        yield f"training.{option} {reason}"
    if training.cpu_offload and not gpu:
        yield "training.cpu_offload is true, but there is no GPU; leave it out"
    if training.traits.stages:
        yield "a pipeline has no forecast; measure it: hposvc memory SPEC --measure"


__all__ = ["CONTEXT", "CannotForecast", "Forecast", "Variant", "make_forecast", "variants"]
