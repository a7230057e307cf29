"""The largest number of each key of a spec, and the smallest where dividing by it would overflow.

Each bound is far above what anybody needs, and low enough that a process which reads, folds or
drives the spec builds nothing that exhausts its memory. Numbers that are only compared, such as
`metric.target`, have no bound. Like the rules between keys, bounds are for new specs: a recorded
spec keeps its numbers.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hposvc.errors import Problem, shown
from hposvc.spec.registry import SCHEDULERS, SEARCHERS, PluginType

STEPS = 10**15  # floats hold all whole numbers up to here
COUNT = 10**9  # of what is counted, but never built in advance
AT_ONCE = 10**5  # of what exists at the same time
SEEDS = 1000
SECONDS = 1e9  # 30 years
HOURS = 1e9
AMOUNT = 1e12

MOST: Mapping[str, float] = {
    "fidelity.max": STEPS,
    "fidelity.min": STEPS,
    "trials.max": COUNT,
    "trials.parallel": AT_ONCE,
    "resources.workers": AT_ONCE,
    "resources.workers.min": AT_ONCE,
    "resources.workers.max": AT_ONCE,
    "resources.cpus_per_worker": AT_ONCE,
    "resources.gpus_per_worker": AT_ONCE,
    "resources.custom": AMOUNT,
    "queue.max_parallel": AT_ONCE,
    "training.accumulate": AT_ONCE,
    "training.shard_ranks": AT_ONCE,
    "training.tensor_parallel": AT_ONCE,
    "training.activation_checkpointing": COUNT,
    "training.trials_per_process": AT_ONCE,
    "training.sync_every": COUNT,
    "training.log_layers_every": COUNT,
    "training.lr_base_batch": COUNT,
    "training.bucket_cap_mb": AMOUNT,
    "budget.wall": SECONDS,
    "budget.gpu_hours": HOURS,
    "budget.cpu_hours": HOURS,
    "budget.cost": AMOUNT,
    "stop.plateau.trials": COUNT,
    "stop.worth.gpu_hours": HOURS,
    "stop.worth.cpu_hours": HOURS,
    "stop.worth.trials": COUNT,
    "stop.max_failed.after": COUNT,
    "finalists.top": SEEDS,
    "finalists.seeds": SEEDS,
    "baseline.seeds": SEEDS,
    "price.gpu_hour": AMOUNT,
    "price.worker_hour": AMOUNT,
    "failure.infra_retries": COUNT,
    "failure.preempt_retries": COUNT,
    "failure.user_retries": COUNT,
    "failure.grace": SECONDS,
    "checkpoints.every": STEPS,
    "checkpoints.keep_last": COUNT,
    "checkpoints.keep_best": COUNT,
    "warm_start.top": COUNT,
    "seed": 2**64,
}
LEAST = dict.fromkeys(  # 0 aside; Ray counts resources in ten thousandths
    ("resources.cpus_per_worker", "resources.gpus_per_worker", "resources.custom"), 1e-4
)
# Of the options of built-in plug-ins; `plateau` is beside those of any scheduler.
MOST_OPTIONS: Mapping[str, Mapping[str, float]] = {
    "search": {
        "initial": AT_ONCE,
        "probe_every": COUNT,
        "rows": AT_ONCE,
        "resolution": AT_ONCE,
        "startup": COUNT,
        "candidates": AT_ONCE,
        "population": AT_ONCE,
    },
    "scheduler": {
        "eta": COUNT,
        "brackets": COUNT,
        "min_trials": COUNT,
        "interval": STEPS,
        "until": STEPS,
        "plateau.patience": STEPS,
    },
}
KINDS: Mapping[str, PluginType[Any]] = {"search": SEARCHERS, "scheduler": SCHEDULERS}
REMEDIES = {  # beside the bound
    "trials.max": "leave it out for as many as a budget allows",
    "trials.parallel": "write auto for as many as fit",
    "failure.preempt_retries": "write unlimited for any number",
}


def bound_problems(spec: object) -> Iterator[Problem]:
    """Check that no number of a spec is beyond its bounds."""
    for key, least in LEAST.items():
        for path, number in _numbers(spec, tuple(key.split(".")), ()):
            if isinstance(number, int | float) and 0 < number < least:
                yield Problem(path, f"is {shown(number)}", f"give {least:.4f} or more")
    for key, most in MOST.items():
        for path, number in _numbers(spec, tuple(key.split(".")), ()):
            yield from _above(path, number, most, REMEDIES.get(key))
    for section, bounds in MOST_OPTIONS.items():
        plug_in = getattr(spec, section)
        if plug_in.name not in KINDS[section].classes:
            bounds = {key: most for key, most in bounds.items() if "." in key}
        for key, most in bounds.items():
            for path, number in _numbers(plug_in.options, tuple(key.split(".")), (section,)):
                yield from _above(path, number, most, None)


def option_problem(option: str, value: object) -> Problem | None:
    """Return what is wrong with the size of a value of a training option; None: nothing."""
    most = MOST.get(f"training.{option}")
    return next(_above((), value, most, None), None) if most else None


def _numbers(
    owner: object, keys: tuple[str, ...], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield the values at dotted keys, with their paths; those of a mapping one by one."""
    if keys:
        value = owner.get(keys[0]) if isinstance(owner, Mapping) else getattr(owner, keys[0], None)
        yield from _numbers(value, keys[1:], (*path, keys[0]))
    elif isinstance(owner, Mapping):
        yield from (((*path, name), value) for name, value in owner.items())
    else:
        yield path, owner


def _above(
    path: tuple[str, ...], number: object, most: float, remedy: str | None
) -> Iterator[Problem]:
    if isinstance(number, int | float) and number > most:
        message = f"is {shown(number)}; give {most:,.0f} or less"
        yield Problem(path, f"{message}, or {remedy}" if remedy else message)
