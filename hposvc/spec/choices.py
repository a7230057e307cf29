"""Values left to the scheduler: the first rung, and options that depend on the trainable.

What was chosen stands in the spec that a sweep records, so it stays when trials become longer. It
also stands under `chosen`, so that a spec that is made from a recorded one is chosen for anew: what
a user has changed differs from it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hposvc.schedulers.scheduler import FIRST_PART, Choosing
from hposvc.spec.registry import SCHEDULERS, build
from trainables.contract import COUNTED

if TYPE_CHECKING:
    from hposvc.spec.sweep_spec import SweepSpec

FIRST, SCHEDULER = "fidelity.min", "scheduler."


def without_first_rung(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a spec without a first rung that was chosen."""
    chosen, fidelity = data.get("chosen"), data.get("fidelity")
    if not isinstance(chosen, Mapping) or not isinstance(fidelity, Mapping) or FIRST not in chosen:
        return data
    given = {
        key: value for key, value in fidelity.items() if (key, value) != ("min", chosen[FIRST])
    }
    return {**data, "fidelity": given}


def with_first_rung(spec: "SweepSpec") -> "SweepSpec":
    """Return the spec with a first rung: its own, its scheduler's, or the first step.

    Updates, samples and tokens are too many for a report after each: there, a 20th of a trial.
    """
    options, fidelity = spec.scheduler.options, spec.fidelity
    chosen = {
        key: value
        for key, value in spec.chosen.items()
        if key != FIRST and options.get(key.removeprefix(SCHEDULER)) == value
    }
    if fidelity is None or fidelity.min is not None:
        return replace(spec, chosen=chosen)
    if (policy := _choosing(spec)) is not None:
        first = policy.first_rung(spec.plan)
    else:
        first = -(-fidelity.max // FIRST_PART) if fidelity.unit in COUNTED else 1
    chosen[FIRST] = first
    return replace(spec, fidelity=replace(fidelity, min=first), chosen=chosen)


def with_options(spec: "SweepSpec", *, resumes: bool) -> "SweepSpec":
    """Return the spec with the options that its scheduler chooses.

    Args:
        resumes: whether trials go on from their checkpoints without code of the user's for it.
    """
    before = {key.removeprefix(SCHEDULER): value for key, value in spec.chosen.items()}
    options = spec.scheduler.options
    given = {key: value for key, value in options.items() if before.get(key) != value}
    chosen = {key: value for key, value in spec.chosen.items() if key == FIRST}
    spec = replace(spec, scheduler=replace(spec.scheduler, options=given), chosen=chosen)
    if (policy := _choosing(spec)) is not None:
        missing = policy.missing_options(spec.plan, resumes)
        scheduler = replace(spec.scheduler, options={**given, **missing})
        chosen |= {f"{SCHEDULER}{key}": value for key, value in missing.items()}
        spec = replace(spec, scheduler=scheduler, chosen=chosen)
    return spec


def _choosing(spec: "SweepSpec") -> Choosing | None:
    """Return the scheduler of a spec, if it is one of ours that chooses."""
    if ":" in spec.scheduler.name:
        return None
    policy = build(SCHEDULERS, spec.scheduler)
    return policy if isinstance(policy, Choosing) else None
