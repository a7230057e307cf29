"""Which training options exclude each other, and why. Without torch: `validate` asks it too.

docs/training.md shows the table that these rules make (docs/techniques.py writes it).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainables.batched.options import ONLY, shown
from trainables.training import Training
from trainables.worker import Nan

WHOLE = ("single", "ddp", "zero1", "local_sgd")  # every rank holds the whole model


@dataclass(frozen=True)
class Rule:
    """A combination that cannot work."""

    option: str  # the one to change
    excluded: Callable[[Training, int], bool]  # of the options and the number of workers
    reason: str  # completes "training.OPTION is VALUE, but ..."


def _needs(option: str, strategies: tuple[str, ...], reason: str) -> Rule:
    """An option other than its default is for some strategies only."""
    default = getattr(Training(), option)
    return Rule(
        option,
        lambda t, _: getattr(t, option) != default and t.strategy not in strategies,
        f"{reason}; set strategy to {' or '.join(strategies)}, or leave {option} out",
    )


def _idle(option: str, at_work: Callable[[Training], bool], otherwise: str) -> Rule:
    """An option other than its default would do nothing."""
    default = getattr(Training(), option)
    return Rule(option, lambda t, _: getattr(t, option) != default and not at_work(t), otherwise)


TOGETHER = "training.batched lets trials train at once in one process, which know "


def _unbatched(option: str) -> Rule:
    """A value of an option that trials which train at once do not know."""
    known = " or ".join(map(shown, ONLY[option]))
    return Rule(
        option,
        lambda t, _: t.batched > 1 and getattr(t, option) not in ONLY[option],
        f"{TOGETHER}{known}; choose that, or leave batched out",
    )


OWN = "the task makes its optimizer itself; set training.optimizer, or leave it out"

RULES = (
    *map(_unbatched, ONLY),
    Rule(
        "batched",
        lambda t, workers: t.batched > 1 and workers > 1,
        "trials that train at once have one worker each; set resources.workers to 1",
    ),
    _idle("weight_decay", lambda t: t.optimizer != "task", OWN),
    _idle("layer_decay", lambda t: t.optimizer != "task", OWN),
    _idle(
        "momentum",
        lambda t: t.optimizer in ("sgd", "lars"),
        "only the optimizers sgd and lars have one",
    ),
    _idle(
        "warmup",
        lambda t: t.schedule != "task",
        "the task says its learning rates itself; set training.schedule, or leave it out",
    ),
    _idle(
        "lr_batch",
        lambda t: t.lr_scaling != "none",
        "the learning rate does not follow the batch; set training.lr_scaling, or leave it out",
    ),
    _idle(
        "clip_by",
        lambda t: t.clip is not None,
        "nothing is clipped; set training.clip, or leave it out",
    ),
    Rule(
        "strategy",
        lambda t, workers: t.strategy == "single" and workers > 1,
        "a trial has several workers; choose ddp",
    ),
    _needs("bucket_mb", ("ddp", "zero1"), "only DDP sends gradients in buckets"),
    _needs("static_graph", ("ddp", "zero1"), "only DDP learns the order of gradients"),
    _needs("compress", ("ddp", "zero1"), "only DDP's gradients can be compressed"),
    Rule(
        "compress",
        lambda t, _: t.compress == "powersgd" and t.precision == "16-mixed",
        "it keeps what it leaves out, so an overflow of float16 would stay; choose bf16-mixed",
    ),
    Rule(
        "compress",
        lambda t, _: t.compress != "none" and t.deterministic,
        "deterministic gradients travel as they are, so that a resumed trial adds up the same; "
        "leave one of the two out",
    ),
    Rule(
        "static_graph",
        lambda t, _: t.static_graph and t.deterministic,
        "deterministic gradients are added up without DDP, which then learns no order; leave it "
        "out",
    ),
    _needs("sync_batchnorm", ("ddp", "fsdp", "zero1"), "only ranks that share each batch can"),
    _needs("reshard", ("fsdp",), "only fsdp shards weights"),
    _needs("zero_stage", ("deepspeed",), "only deepspeed has stages"),
    _needs("offload", ("fsdp", "deepspeed"), "only they can keep their parts in the CPU's memory"),
    Rule(
        "offload",
        lambda t, workers: t.offload and t.strategy in ("fsdp", "deepspeed") and workers == 1,
        "one worker shards nothing; give resources.workers 2 or more, or leave it out",
    ),
    Rule(
        "offload",
        lambda t, _: t.offload and (t.precision == "16-mixed" or t.watch > 0),
        "what is on the CPU cannot be added up over GPUs; choose bf16-mixed, and watch: 0",
    ),
    _needs("tensor_ranks", ("fsdp",), "only fsdp has a second dimension of ranks"),
    _needs("pipeline_schedule", ("pipeline",), "only a pipeline has stages"),
    _needs("average_every", ("local_sgd",), "only local_sgd averages weights"),
    _needs("compile", WHOLE, "torch.compile is not tried with models whose parts are elsewhere"),
    _needs("float32_modules", WHOLE, "the others choose formats by block, or for all"),
    Rule(
        "float32_modules",
        lambda t, _: bool(t.float32_modules) and t.precision == "64-true",
        "64-true computes finer than float32 already; leave it out",
    ),
    Rule(
        "tensor_ranks",
        lambda t, workers: t.strategy == "fsdp" and workers % t.tensor_ranks != 0,
        "the workers of a trial are no multiple of it; give a divisor of resources.workers",
    ),
    Rule(
        "accumulate",
        lambda t, workers: (
            t.strategy == "pipeline" and t.pipeline_schedule == "1f1b" and t.accumulate < workers
        ),
        "1f1b has a micro-batch under way in each stage; give the number of workers or more (four "
        "times as many keep ranks from waiting), or set pipeline_schedule to gpipe",
    ),
    Rule(
        "accumulate",
        lambda t, workers: (
            t.strategy == "pipeline"
            and t.pipeline_schedule == "interleaved"
            and t.accumulate % workers != 0
        ),
        "interleaved stages take micro-batches in rounds of one a worker; give a multiple of the "
        "workers",
    ),
    Rule(
        "clip_by",
        lambda t, _: t.strategy == "pipeline" and t.clip_by == "adaptive",
        "it leaves the model's last layer alone, and a stage of a pipeline has a last layer of "
        "its own; choose norm or value",
    ),
    Rule(
        "layer_decay",
        lambda t, _: t.strategy == "pipeline" and t.layer_decay != 1,
        "a rank of a pipeline does not know how deep in the model its layers are; leave it out",
    ),
    Rule(
        "watch",
        lambda t, _: t.strategy == "pipeline" and t.watch > 0,
        "rank 0 of a pipeline, whose reports count, sees its own layers only; leave it out",
    ),
    Rule(
        "precision",
        lambda t, _: t.strategy == "deepspeed" and t.precision not in ("32-true", "bf16-mixed"),
        "deepspeed's flat weights are in 32 bits, and their scale its own; choose 32-true or "
        "bf16-mixed, or the strategy fsdp",
    ),
    Rule(
        "clip_by",
        lambda t, _: t.strategy == "deepspeed" and t.clip is not None and t.clip_by != "norm",
        "deepspeed's gradients are flat parts; choose norm, or the strategy fsdp",
    ),
    Rule(
        "optimizer",
        lambda t, _: t.strategy == "deepspeed" and t.optimizer in ("lars", "lamb", "adafactor"),
        "it looks at whole weights, and deepspeed's are flat parts; choose adamw or sgd, or the "
        "strategy fsdp",
    ),
    Rule(
        "ema",
        lambda t, _: t.strategy == "deepspeed" and t.ema is not None,
        "deepspeed's weights are flat parts, which are not averaged; choose the strategy fsdp",
    ),
    Rule(
        "watch",
        lambda t, _: t.strategy == "deepspeed" and t.watch > 0,
        "deepspeed's gradients are flat parts, and belong to no layer; choose the strategy fsdp",
    ),
    Rule(
        "optimizer",
        lambda t, _: t.strategy in ("fsdp", "tensor") and t.optimizer == "adafactor",
        "it cannot train weights that ranks share; choose adamw, sgd, lars or lamb",
    ),
    Rule(
        "optimizer",
        lambda t, _: t.precision == "16-true" and t.optimizer in ("adamw", "lamb"),
        "small squares of gradients are 0 in float16, and it divides by them; choose sgd, lars or "
        "adafactor, or precision 16-mixed",
    ),
)


def refusals(training: Training, workers: int) -> Iterator[tuple[str, str]]:
    """Each option that cannot work with the others on so many workers, and why."""
    for rule in RULES:
        if rule.excluded(training, workers):
            yield rule.option, f"is {_shown(getattr(training, rule.option))}, but {rule.reason}"


def nan_refusals(training: Training, workers: int, nan: Nan) -> Iterator[str]:
    """Why ranks cannot treat an update that is not finite as failure.nan says."""
    if training.batched > 1 and nan != "stop":
        yield f"is {nan}, but trials that train at once (training.batched) know stop only"
    if workers == 1:
        return  # one rank alone is no strategy's, and compresses nothing
    if training.strategy == "local_sgd" and nan == "rollback":
        yield (
            "is rollback, but ranks of local_sgd judge their updates alone, and cannot go back "
            "alone; set it to skip or stop, or choose the strategy ddp"
        )
    if training.strategy == "deepspeed" and nan == "rollback":
        yield (
            "is rollback, but deepspeed takes weights up when an order begins, not amid one; set "
            "it to skip or stop, or choose the strategy fsdp"
        )
    if training.compress == "powersgd" and nan != "stop":
        yield (
            f"is {nan}, but powersgd keeps what it leaves out, so a gradient that is not finite "
            "would stay; set it to stop, or compress to fp16"
        )


def check(training: Training, workers: int, nan: Nan) -> None:
    """Refuse what cannot work.

    Raises:
        ValueError: with every reason.
    """
    found = [f"training.{option} {reason}" for option, reason in refusals(training, workers)]
    found += [f"failure.nan {reason}" for reason in nan_refusals(training, workers, nan)]
    if found:
        raise ValueError("\n".join(found))


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
