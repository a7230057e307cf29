"""What each way to share a model among ranks will take of a rank's memory."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from math import ceil
from typing import TYPE_CHECKING

from trainables import combinations
from trainables.data import Data
from trainables.forecasting.company import rehearse_company
from trainables.forecasting.ledger import NotForeseen
from trainables.forecasting.line import rehearse_line
from trainables.forecasting.outline import bytes_of, example
from trainables.forecasting.rehearsal import Course, rehearse
from trainables.training import Training

if TYPE_CHECKING:
    from trainables.task import Task

# Of strategies: what the others are not to be asked with.
OWN = (
    *("bucket_mb", "static_graph", "compress", "sync_batchnorm", "reshard", "offload"),
    *("tensor_ranks", "pipeline_schedule", "zero_stage", "average_every", "batched"),
)
WORKSPACE = 32 * 2**20  # bytes that cuBLAS takes of torch's memory on an H100; elsewhere 8 MiB
CONTEXT = 600 * 10**6  # bytes of a GPU that CUDA takes for a process, beside torch's; about
BUCKET = 4 * 50_000_000  # bytes of DeepSpeed's buffer of gradients, see parallel/deepspeed.py
LIVE = 4 * 1_000_000_000  # bytes of weights that its stage 3 keeps gathered (its default)
ALONE = ("single", "tensor", "pipeline")  # whose ranks all see the whole batch


@dataclass(frozen=True)
class Variant:
    """A way to train, as people call it."""

    name: str
    training: Training
    ranks: int
    chosen: bool = False  # it is the spec's own


@dataclass(frozen=True)
class Forecast:
    """Bytes of the rank that has most."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int  # of one micro-batch, between its forward and its backward pass
    other: int  # buffers, samples on a GPU, buckets of gradients, workspaces
    peak: int  # the most at one moment
    fullest: str  # when that is
    micro_batch: int  # samples
    host: int = 0  # of the CPU's memory, what is kept there instead
    exact: bool = True  # found by following each operation; else by a formula

    def fits(self, memory: int) -> bool:
        """Whether a GPU with so many bytes has room for it, and for what CUDA takes itself."""
        return self.peak + CONTEXT <= memory


def variants(training: Training, ranks: int) -> list[Variant]:
    """The spec's own way, and the others with the same options on as many ranks (2 or more)."""
    plain, several = alone(training), max(ranks, 2)
    micro = ceil(training.accumulate / several) * several
    ways = {
        "single": {"strategy": "single"},
        "ddp": {"strategy": "ddp"},
        "zero1": {"strategy": "zero1"},
        "fsdp, reshard: false": {"strategy": "fsdp", "reshard": False},
        "fsdp": {"strategy": "fsdp"},
        "fsdp, offload": {"strategy": "fsdp", "offload": True},
        "tensor": {"strategy": "tensor"},
        f"pipeline, accumulate: {micro}": {"strategy": "pipeline", "accumulate": micro},
        "local_sgd": {"strategy": "local_sgd"},
        **{
            f"deepspeed, zero_stage: {stage}": {"strategy": "deepspeed", "zero_stage": stage}
            for stage in (1, 2, 3)
        },
    }
    found = []
    for name, options in ways.items():
        own = replace(plain, **options)  # type: ignore[arg-type]  # each is of its option's kind
        number = 1 if name == "single" else several
        found.append(Variant(name, own, number, (own, number) == (training, ranks)))
    if not any(variant.chosen for variant in found):
        found.insert(0, Variant(named(training), training, ranks, True))
    return found


def alone(training: Training) -> Training:
    """The options, without those that only some strategies have."""
    return replace(training, **{name: getattr(Training(), name) for name in OWN})


def fitted(training: Training, ranks: int) -> Training:
    """The options, as far as another number of ranks than the spec's can have them."""
    if ranks == 1:
        return replace(alone(training), strategy="single", batched=training.batched)
    strategy = "ddp" if training.strategy == "single" else training.strategy
    return replace(training, strategy=strategy, batched=1)


def named(training: Training) -> str:
    """The strategy, and those of its options that are not their default."""
    default = Training()
    options = [
        f"{field.name}: {str(getattr(training, field.name)).lower()}"
        for field in fields(Training)
        if field.name in OWN and getattr(training, field.name) != getattr(default, field.name)
    ]
    return ", ".join([training.strategy, *options])


def foresee(task: "Task", data: Data, variant: Variant, gpu: bool) -> Forecast:
    """What it will take of the fullest rank.

    Args:
        data: the task's.
        gpu: whether the memory of GPUs is meant, or that of processes without one.

    Raises:
        NotForeseen: the task needs numbers that a forecast does not have.
        ValueError: options that exclude each other, or a model that the strategy does not take.
    """
    training, ranks = variant.training, variant.ranks
    if reasons := list(_refusals(training, ranks, gpu)):
        raise ValueError(reasons[0])
    micro = micro_batch(task.batch, training, ranks)
    batch = example(data, micro, training)
    exact = training.strategy != "deepspeed"
    if training.strategy == "pipeline":
        course = rehearse_line(task, training, ranks, batch, gpu)
    elif training.trials_at_once() > 1:
        course = rehearse_company(task, training, data, batch, gpu)
    elif exact:
        course = rehearse(task, replace(training, offload=False), ranks, batch, gpu)
    else:
        whole = rehearse(task, replace(alone(training), strategy="single"), 1, batch, gpu)
        course = flat(whole, training, ranks, gpu)
    besides = bytes_of(data) + WORKSPACE if gpu else 0
    found = Forecast(
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
    if not training.offload:
        return found
    own = training.strategy == "deepspeed" and training.zero_stage < 3
    return replace(found, host=beside_the_gpu(whole, ranks)) if own else offloaded(found)


def micro_batch(batch: int, training: Training, ranks: int) -> int:
    """Samples of the largest micro-batch of a rank."""
    places = 1 if training.strategy in ALONE else ranks // training.tensor_ranks
    return ceil(ceil(batch / places) / training.accumulate)


def offloaded(whole: Forecast) -> Forecast:
    """The same with weights' parts, gradients and optimizer in the CPU's memory.

    Gradients go there one after the other, so some count as on the GPU still.
    """
    kept = whole.parameters + whole.optimizer
    return replace(
        whole,
        parameters=0,
        gradients=0,
        optimizer=0,
        peak=whole.peak - kept,
        host=kept + whole.gradients,
    )


def beside_the_gpu(whole: Course, ranks: int) -> int:
    """Bytes of the CPU's memory that DeepSpeed's offload takes at stages 1 and 2.

    Of its part of the weights a rank keeps there the copy that is updated, the one that goes to
    the GPU, the gradients, and the optimizer's state; the weights themselves stay on the GPU.
    Source: Ren et al., ZeRO-Offload (2021), section 4.1, and DeepSpeed 0.19.8.
    """
    return 3 * whole.gradients // ranks + whole.optimizer // ranks


def flat(whole: Course, training: Training, ranks: int, gpu: bool) -> Course:
    """What DeepSpeed takes, by a formula, from what one rank with whole weights takes.

    Each rank updates a flat copy of its part of the weights, in 32 bits. Stage 1 deals out these
    and the optimizer's state, 2 gradients too, 3 the weights too, but for those that it keeps
    gathered. On a CPU the buffer of gradients of stages 1 and 2 is hardly written to. With
    offload at these stages copies and state are elsewhere, and gradients leave with their buffer;
    at stage 1 those of other ranks' parts stay until the update.
    Source: Rajbhandari et al., ZeRO (2020), section 5.
    """
    stage, elsewhere = training.zero_stage, training.offload and training.zero_stage < 3
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
    if training.offload and not gpu:
        yield "training.offload is true, but there is no GPU; leave it out"


__all__ = ["CONTEXT", "Forecast", "NotForeseen", "Variant", "foresee", "variants"]
