"""Rules for training options that exclude each other. Imports no torch: `validate` uses it too.

The pages `training-reference` and `strategies` show these rules, written by docs/techniques.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainables.training import Training
from trainables.vmap_options import SUPPORTED, as_text
from trainables.worker import Nan

WHOLE = ("single", "ddp", "zero1", "local_sgd")  # every rank holds the whole model


@dataclass(frozen=True)
class Rule:
    """A combination of options that cannot work."""

    option: str  # the option to change
    excluded: Callable[[Training, int], bool]  # by the options and the number of workers
    reason: str  # completes "training.OPTION is VALUE, but ..."


def _needs(option: str, strategies: tuple[str, ...], reason: str) -> Rule:
    """Return a rule: only some strategies support values other than the option's default."""
    default = getattr(Training(), option)
    return Rule(
        option,
        lambda t, _: getattr(t, option) != default and t.strategy not in strategies,
        f"{reason}; set strategy to {' or '.join(strategies)}, or leave {option} out",
    )


def _unused(option: str, at_work: Callable[[Training], bool], otherwise: str) -> Rule:
    """Return a rule: values other than the option's default would have no effect."""
    default = getattr(Training(), option)
    return Rule(option, lambda t, _: getattr(t, option) != default and not at_work(t), otherwise)


TOGETHER = "training.trials_per_process lets trials train at once in one process, which know "


def _supported_by_vmap(option: str) -> Rule:
    """Return a rule: trials training at once support only some values of the option."""
    allowed = " or ".join(map(as_text, SUPPORTED[option]))
    return Rule(
        option,
        lambda t, _: t.trials_per_process > 1 and getattr(t, option) not in SUPPORTED[option],
        f"{TOGETHER}{allowed}; choose that, or leave trials_per_process out",
    )


OWN = "the task makes its optimizer itself; set training.optimizer, or leave it out"

RULES = (
    *map(_supported_by_vmap, SUPPORTED),
    Rule(
        "trials_per_process",
        lambda t, workers: t.trials_per_process > 1 and workers > 1,
        "trials that train at once have one worker each; set resources.workers to 1",
    ),
    _unused("weight_decay", lambda t: t.optimizer != "task", OWN),
    _unused("layer_decay", lambda t: t.optimizer != "task", OWN),
    _unused(
        "momentum",
        lambda t: t.optimizer in ("sgd", "lars"),
        "only the optimizers sgd and lars have one",
    ),
    _unused(
        "warmup",
        lambda t: t.schedule != "task",
        "the task says its learning rates itself; set training.schedule, or leave it out",
    ),
    _unused(
        "lr_base_batch",
        lambda t: t.lr_scaling != "none",
        "the learning rate does not follow the batch; set training.lr_scaling, or leave it out",
    ),
    _unused(
        "clip_by",
        lambda t: t.clip is not None,
        "nothing is clipped; set training.clip, or leave it out",
    ),
    Rule(
        "strategy",
        lambda t, workers: t.strategy == "single" and workers > 1,
        "a trial has several workers; choose ddp",
    ),
    _needs("bucket_cap_mb", ("ddp", "zero1"), "only DDP sends gradients in buckets"),
    Rule(
        "bucket_cap_mb",
        lambda t, _: t.bucket_cap_mb < 1 and t.compile != "none" and t.strategy in ("ddp", "zero1"),
        "torch.compile cuts a model where gradients are sent, in buckets of 1 MB or more; give 1 "
        "or more, or leave compile out",
    ),
    _needs("static_graph", ("ddp", "zero1"), "only DDP learns the order of gradients"),
    _needs("gradient_compression", ("ddp", "zero1"), "only DDP's gradients can be compressed"),
    Rule(
        "gradient_compression",
        lambda t, _: t.gradient_compression == "powersgd" and t.precision == "16-mixed",
        "it adds its compression error to later gradients, so an overflow of float16 would stay; "
        "choose bf16-mixed",
    ),
    Rule(
        "gradient_compression",
        lambda t, _: t.gradient_compression != "none" and t.deterministic,
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
    _needs("reshard_after_forward", ("fsdp",), "only fsdp shards weights"),
    _needs("zero_stage", ("deepspeed",), "only deepspeed has stages"),
    _needs("cpu_offload", ("fsdp", "deepspeed"), "only they can keep shards in the CPU's memory"),
    Rule(
        "cpu_offload",
        lambda t, workers: t.cpu_offload and t.strategy in ("fsdp", "deepspeed") and workers == 1,
        "one worker shards nothing; give resources.workers 2 or more, or leave it out",
    ),
    Rule(
        "cpu_offload",
        lambda t, _: t.cpu_offload and (t.precision == "16-mixed" or t.log_layers_every > 0),
        "tensors on the CPU cannot be added up over GPUs; choose bf16-mixed, and "
        "log_layers_every: 0",
    ),
    _needs("shard_ranks", ("fsdp",), "only fsdp shards weights over a part of the ranks"),
    Rule(
        "shard_ranks",
        lambda t, workers: (
            t.strategy == "fsdp"
            and t.shard_ranks > 0
            and workers > 1
            and (t.shard_ranks == 1 or workers % t.shard_ranks != 0)
        ),
        "each copy of the weights is shared by two or more, and as many workers; give a divisor of "
        "resources.workers, or choose ddp",
    ),
    Rule(
        "shard_ranks",
        lambda t, _: t.shard_ranks > 0 and t.tensor_parallel > 1,
        "ranks that split layers shard over all others; leave one of the two out",
    ),
    _needs("tensor_parallel", ("fsdp",), "only fsdp has a second dimension of ranks"),
    _needs("pipeline_schedule", ("pipeline",), "only a pipeline has stages"),
    _needs("sync_every", ("local_sgd",), "only local_sgd averages weights"),
    _needs("compile", (*WHOLE, "fsdp"), "the others change how a model's parts are called"),
    Rule(
        "compile",
        lambda t, _: t.compile != "none" and t.tensor_parallel > 1,
        "layers that ranks split cannot be compiled; leave tensor_parallel out",
    ),
    _needs(
        "float32_modules", WHOLE, "the others choose precision by block, or for the whole model"
    ),
    Rule(
        "float32_modules",
        lambda t, _: bool(t.float32_modules) and t.precision == "64-true",
        "64-true computes finer than float32 already; leave it out",
    ),
    Rule(
        "tensor_parallel",
        lambda t, workers: t.strategy == "fsdp" and workers % t.tensor_parallel != 0,
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
        "log_layers_every",
        lambda t, _: t.strategy == "pipeline" and t.log_layers_every > 0,
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
        lambda t, _: (
            t.strategy == "deepspeed" and t.optimizer in ("lars", "lamb", "adafactor", "muon")
        ),
        "it looks at whole weights, and deepspeed's are flat parts; choose adamw or sgd, or the "
        "strategy fsdp",
    ),
    Rule(
        "ema",
        lambda t, _: t.strategy == "deepspeed" and t.ema is not None,
        "deepspeed's weights are flat parts, which are not averaged; choose the strategy fsdp",
    ),
    Rule(
        "log_layers_every",
        lambda t, _: t.strategy == "deepspeed" and t.log_layers_every > 0,
        "deepspeed's gradients are flat parts, and belong to no layer; choose the strategy fsdp",
    ),
    Rule(
        "optimizer",
        lambda t, _: t.strategy in ("fsdp", "tensor") and t.optimizer == "adafactor",
        "it cannot train weights that ranks share; choose adamw, sgd, lars or lamb",
    ),
    Rule(
        "optimizer",
        lambda t, _: t.strategy in ("fsdp", "tensor", "pipeline") and t.optimizer == "muon",
        "its iteration in bfloat16 rounds differently over parts of matrices (losses 1e-4 off), "
        "and a rank of a pipeline does not know the model's last layer; choose adamw, ddp or zero1",
    ),
    Rule(
        "optimizer",
        lambda t, _: t.precision == "16-true" and t.optimizer in ("adamw", "lamb", "muon"),
        "small squares of gradients are 0 in float16, and it divides by them; choose sgd, lars or "
        "adafactor, or precision 16-mixed",
    ),
)


def refusals(training: Training, workers: int) -> Iterator[tuple[str, str]]:
    """Yield each option that cannot work with the others on `workers` ranks, and the reason."""
    for rule in RULES:
        if rule.excluded(training, workers):
            value = getattr(training, rule.option)
            text = str(value).lower() if isinstance(value, bool) else str(value)
            yield rule.option, f"is {text}, but {rule.reason}"


def nan_refusals(training: Training, workers: int, nan: Nan) -> Iterator[str]:
    """Yield the reasons why ranks cannot treat a non-finite update as failure.nan says."""
    if training.trials_per_process > 1 and nan != "stop":
        yield (
            f"is {nan}, but trials that train at once (training.trials_per_process) know stop only"
        )
    if workers == 1:
        return  # a single rank uses no strategy, and compresses nothing
    if training.strategy == "local_sgd" and nan == "rollback":
        yield (
            "is rollback, but ranks of local_sgd judge their updates alone, and cannot go back "
            "alone; set it to skip or stop, or choose the strategy ddp"
        )
    if training.strategy == "deepspeed" and nan == "rollback":
        yield (
            "is rollback, but deepspeed loads weights only when an order begins; set it to skip or "
            "stop, or choose the strategy fsdp"
        )
    if training.gradient_compression == "powersgd" and nan != "stop":
        yield (
            f"is {nan}, but powersgd adds its compression error to later gradients, so a gradient "
            "that is not finite would stay; set it to stop, or gradient_compression to fp16"
        )


def check(training: Training, workers: int, nan: Nan) -> None:
    """Refuse options that cannot work together.

    Raises:
        ValueError: some cannot; the message has every reason.
    """
    problems = [f"training.{option} {reason}" for option, reason in refusals(training, workers)]
    problems += [f"failure.nan {reason}" for reason in nan_refusals(training, workers, nan)]
    if problems:
        raise ValueError("\n".join(problems))
