"""Limits of a sweep that can be moved while it runs, or after its end."""

from collections.abc import Mapping

from hposvc import spec as specs
from hposvc.reading.problems import Problem, SpecError, no_such
from hposvc.spec import SweepSpec

# Dotted keys. The rest of a spec is what makes results comparable: `fork` changes that.
LIMITS = (
    "trials.max",
    "trials.parallel",
    "fidelity.max",
    "budget.wall",
    "budget.gpu_hours",
    "budget.cpu_hours",
    "metric.target",
    "stop.plateau",
    "stop.max_failed",
    "checkpoints.quota",
)
# Longer trials would need other brackets than those that its trials were dealt to.
FIXED_LENGTH = ("hyperband", "bohb", "replay")


def edited(spec: SweepSpec, changes: Mapping[str, object]) -> SweepSpec:
    """The spec with other limits; null takes one away.

    Raises:
        SpecError: a key that is no limit, or a value that does not fit.
    """
    problems = [*map(_unknown, [key for key in changes if key not in LIMITS])]
    if not problems and "fidelity.max" in changes:
        problems = _shorter(spec, changes["fidelity.max"])
    if problems:
        raise SpecError(problems)
    data = specs.dump(spec)
    for key, value in changes.items():
        section, _, name = key.partition(".")
        before = data.get(section)
        data[section] = {**(before if isinstance(before, dict) else {}), name: value}
    return specs.restore(data)


def _unknown(key: str) -> Problem:
    message = no_such("limit", key, LIMITS)
    return Problem((key,), f"{message}; `hposvc fork` changes the rest of a spec", at_key=True)


def _shorter(spec: SweepSpec, last: object) -> list[Problem]:
    """Trials can become longer, where their scheduler can take it."""
    path = ("fidelity", "max")
    if isinstance(last, int) and last < spec.last_step:
        return [Problem(path, f"is {last}, and trials are {spec.last_step} long; give no less")]
    if last != spec.last_step and spec.scheduler.name in FIXED_LENGTH:
        message = f"can't grow under scheduler {spec.scheduler.name}"
        return [Problem(path, f"{message}; `hposvc fork` begins anew with what was learned")]
    return []
