"""Rules for training options that exclude each other. Imports no torch: `validate` uses it too.

What a strategy alone refuses is in its row of trainables/strategies.py. The pages
`training-reference` and `strategies` show these rules, written by docs/techniques.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainables.strategies import STRATEGIES
from trainables.training import Training
from trainables.vmap_options import SUPPORTED, as_text
from trainables.worker import Nan

SHARING = ("single", "ddp", "fsdp")  # strategies under which trials share a base
DEFAULTS = Training()  # to make one takes a while, and covering arrays ask for thousands of rules


@dataclass(frozen=True)
class Rule:
    """A combination of options that cannot work."""

    option: str  # the option to change
    excluded: Callable[[Training, int], bool]  # by the options and the number of workers
    reason: str  # completes "training.OPTION is VALUE, but ..."


def _unused(option: str, at_work: Callable[[Training], bool], otherwise: str) -> Rule:
    """Return a rule: values other than the option's default would have no effect."""
    default = getattr(DEFAULTS, option)
    return Rule(option, lambda t, _: getattr(t, option) != default and not at_work(t), otherwise)


def _has(training: Training, option: str) -> bool:
    """Return whether the strategy has an option that not all strategies have."""
    return option in training.traits.options


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
    Rule(
        "share_base",
        lambda t, _: t.share_base > 1 and t.trials_per_process > 1,
        "trials_per_process trains trials of one shape at once; leave one of the two out",
    ),
    Rule(
        "share_base",
        lambda t, _: t.share_base > 1 and t.strategy not in SHARING,
        f"trials share a base with strategy {' or '.join(SHARING)}; choose one of them",
    ),
    Rule(
        "share_base",
        lambda t, _: t.share_base > 1 and t.compile != "none",
        "torch.compile's graphs belong to one trial of a process; leave one of the two out",
    ),
    Rule(
        "share_base",
        lambda t, _: t.share_base > 1 and t.process_group != "managed",
        "all trials of a process use one process group; leave process_group out",
    ),
    _unused(
        "joint_passes",
        lambda t: t.share_base > 1,
        "only trials on one base make passes together; set share_base, or leave it out",
    ),
    Rule(
        "joint_passes",
        lambda t, workers: t.joint_passes and workers > 1,
        "trials whose passes are made as one have one worker each; set resources.workers to 1",
    ),
    Rule(
        "joint_passes",
        lambda t, _: t.joint_passes and t.activation_checkpointing > 0,
        "recomputed activations are those of one trial; set activation_checkpointing to 0",
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
        lambda t, workers: workers > 1 and not t.traits.several_ranks,
        "a trial has several workers; choose ddp",
    ),
    Rule(
        "bucket_cap_mb",
        lambda t, _: _has(t, "bucket_cap_mb") and t.bucket_cap_mb < 1 and t.compile != "none",
        "torch.compile cuts a model where gradients are sent, in buckets of 1 MB or more; give 1 "
        "or more, or leave compile out",
    ),
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
    Rule(
        "cpu_offload",
        lambda t, workers: _has(t, "cpu_offload") and t.cpu_offload and workers == 1,
        "one worker shards nothing; give resources.workers 2 or more, or leave it out",
    ),
    Rule(
        "cpu_offload",
        lambda t, _: t.cpu_offload and (t.precision == "16-mixed" or t.log_layers_every > 0),
        "tensors on the CPU cannot be added up over GPUs; choose bf16-mixed, and "
        "log_layers_every: 0",
    ),
    Rule(
        "shard_ranks",
        lambda t, workers: (
            _has(t, "shard_ranks")
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
    Rule(
        "compile",
        lambda t, _: t.compile != "none" and t.tensor_parallel > 1,
        "layers that ranks split cannot be compiled; leave tensor_parallel out",
    ),
    Rule(
        "float32_modules",
        lambda t, _: bool(t.float32_modules) and t.precision == "64-true",
        "64-true computes finer than float32 already; leave it out",
    ),
    Rule(
        "tensor_parallel",
        lambda t, workers: _has(t, "tensor_parallel") and workers % t.tensor_parallel != 0,
        "the workers of a trial are no multiple of it; give a divisor of resources.workers",
    ),
    Rule(
        "accumulate",
        lambda t, workers: (
            _has(t, "pipeline_schedule")
            and t.pipeline_schedule == "1f1b"
            and t.accumulate < workers
        ),
        "1f1b has a micro-batch under way in each stage; give the number of workers or more (four "
        "times as many keep ranks from waiting), or set pipeline_schedule to gpipe",
    ),
    Rule(
        "accumulate",
        lambda t, workers: (
            _has(t, "pipeline_schedule")
            and t.pipeline_schedule == "interleaved"
            and t.accumulate % workers != 0
        ),
        "interleaved stages take micro-batches in rounds of one a worker; give a multiple of the "
        "workers",
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
    rules = (rule for rule in RULES if rule.excluded(training, workers))
    for option, reason in (
        *((rule.option, rule.reason) for rule in rules),
        *_options_of_others(training),
        *_refusals_of_strategy(training),
    ):
        yield option, f"is {as_text(getattr(training, option))}, but {reason}"


def _options_of_others(training: Training) -> Iterator[tuple[str, str]]:
    """Yield each option that is set, but not among the strategy's."""
    reasons = {
        option: reason
        for strategy in STRATEGIES.values()
        for option, reason in strategy.options.items()
    }
    for option, reason in reasons.items():
        if not _has(training, option) and getattr(training, option) != getattr(DEFAULTS, option):
            owners = (name for name, strategy in STRATEGIES.items() if option in strategy.options)
            yield option, f"{reason}; set strategy to {' or '.join(owners)}, or leave {option} out"


def _refusals_of_strategy(training: Training) -> Iterator[tuple[str, str]]:
    """Yield each option with a value that the strategy cannot obey."""
    for refusal in training.traits.refusals:
        option, value = refusal.option, getattr(training, refusal.option)
        is_default = value == getattr(DEFAULTS, option)
        if value in refusal.values if refusal.values else not is_default:
            yield option, refusal.reason


def nan_refusals(training: Training, workers: int, nan: Nan) -> Iterator[str]:
    """Yield the reasons why ranks cannot treat a non-finite update as failure.nan says."""
    if training.trials_per_process > 1 and nan != "stop":
        yield (
            f"is {nan}, but trials that train at once (training.trials_per_process) know stop only"
        )
    if workers == 1:
        return  # a single rank uses no strategy, and compresses nothing
    if nan == "rollback" and training.traits.no_rollback:
        yield f"is rollback, but {training.traits.no_rollback}"
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
