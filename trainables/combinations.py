"""Which training options exclude each other, and why. Without torch: `validate` asks it too.

docs/training.md shows the table that these rules make (docs/techniques.py writes it).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainables.training import Training

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


OWN = "the task makes its optimizer itself; set training.optimizer, or leave it out"

RULES = (
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
    _needs("offload", ("fsdp",), "only fsdp can keep its shards in the CPU's memory"),
    Rule(
        "offload",
        lambda t, workers: t.offload and t.strategy == "fsdp" and workers == 1,
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
    _needs("float32_modules", WHOLE, "fsdp, tensor and pipeline choose formats by block"),
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


def check(training: Training, workers: int) -> None:
    """Refuse what cannot work.

    Raises:
        ValueError: with every reason.
    """
    if found := [f"training.{option} {reason}" for option, reason in refusals(training, workers)]:
        raise ValueError("\n".join(found))


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
