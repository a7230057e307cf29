"""What a spec leaves to its scheduler: the first rung, and options that depend on the trainable.

What was chosen stands in the spec that a sweep records, so it stays when trials become longer.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from hposvc.schedulers.scheduler import FIRST_SHARE, Choosing, Policy
from hposvc.spec.registry import SCHEDULERS, build, may_be_imported
from trainables.contract import COUNTED

if TYPE_CHECKING:
    from hposvc.spec.sweep_spec import SweepSpec


def with_first_rung(spec: "SweepSpec") -> "SweepSpec":
    """Return the spec with a first rung: its own, its scheduler's, or the first step.

    Updates, samples and tokens are too many for a report after each: there, a 20th of a trial.
    """
    fidelity = spec.fidelity
    if fidelity is None or fidelity.min is not None:
        return spec
    policy = _policy(spec)
    if isinstance(policy, Choosing):
        first = policy.first_rung(spec.plan)
    else:
        first = math.ceil(fidelity.max / FIRST_SHARE) if fidelity.unit in COUNTED else 1
    return replace(spec, fidelity=replace(fidelity, min=first))


def with_missing_options(spec: "SweepSpec", *, resumes: bool) -> "SweepSpec":
    """Return the spec with the options that its scheduler chooses by how trials go on."""
    policy = _policy(spec)
    if not isinstance(policy, Choosing):
        return spec
    options = {**spec.scheduler.options, **policy.missing_options(resumes)}
    return replace(spec, scheduler=replace(spec.scheduler, options=options))


def _policy(spec: "SweepSpec") -> Policy | None:
    """Return the scheduler of a spec; None: it can't be imported here, or its options are wrong."""
    if not may_be_imported(spec.scheduler):
        return None
    try:
        return build(SCHEDULERS, spec.scheduler)
    except ValueError:  # reported elsewhere
        return None
