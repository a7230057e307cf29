"""Say what of a sweep is probably not as its user meant it, and what to do."""

import json
import math
from collections.abc import Iterator

import numpy as np

from hposvc.errors import Problem, dotted
from hposvc.schedulers.scheduler import Copying
from hposvc.spec import SweepSpec
from hposvc.spec.registry import SCHEDULERS, attribute, build
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from searchers import Params, Space, SpaceError

NEAREST = 3  # trials beyond the limits that are named
MOST = 5  # repeated points that are named
ATTEMPTS = 3  # points that are completed to see whether they repeat: one can take 1/3 s


def doubts(state: SweepState) -> list[str]:
    """Return what to mind of a sweep so far."""
    nearest = "" if state.front else nearest_to_limits(state)
    problems = [*map(str, repeated_points(state.spec))]
    trials = state.trials.values()
    last_only = [trial for trial in trials if only_last(trial, state.spec.last_step)]
    if last_only:
        problems.append(
            f"{len(last_only)} of {len(trials)} trials: {describe_only_last(last_only[0])}"
        )
    problems += _no_copies(state)
    return [nearest, *problems] if nearest else problems


def repeated_points(spec: SweepSpec) -> list[Problem]:
    """Return the first points that give an earlier one again, and so train it twice."""
    first: dict[str, str] = {}
    exhausted: dict[str, bool] = {}  # whether a point that came again leaves nothing to be drawn
    problems: list[Problem] = []
    offset = len(spec.first_points) - len(spec.initial)
    attempts = iter(range(ATTEMPTS))
    for index, point in enumerate(spec.first_points):
        path = ("initial", index - offset) if index >= offset else ("baseline", "params")
        key = json.dumps(point, sort_keys=True, default=repr)
        earlier = first.setdefault(key, dotted(path))
        if earlier == dotted(path):
            continue
        if key not in exhausted:
            exhausted[key] = _gives_all(point, spec.space, attempts)
        if exhausted[key]:
            message = f"repeats {earlier}, so the same configuration is trained twice; remove it"
            problems.append(
                Problem(path, f"{message}, or measure the noise by baseline: {{seeds: 5}}")
            )
        if len(problems) == MOST:
            break
    return problems


def _gives_all(point: Params, space: Space, attempts: Iterator[int]) -> bool:
    """Return whether a point leaves nothing to be drawn; no, where no attempt is left to see it."""
    try:
        space.validate(point)
    except SpaceError:  # what it leaves out may still follow from what it gives
        if next(attempts, None) is None:
            return False
        drawn = [space.complete(point, np.random.default_rng(seed)) for seed in (0, 1)]
        return drawn[0] == drawn[1]
    return True


def only_last(trial: TrialState, last: int | None) -> bool:
    """Return whether a trial came to its end by its first report, of several steps."""
    steps = [step for step, _ in trial.curve]
    return trial.at_end and not trial.unjudged and steps == [last] and steps != [1]


def describe_only_last(trial: TrialState) -> str:
    """Say what a trial that reported its last step first has to do."""
    return (
        f"{trial.id} reported step {trial.step} first, which is fidelity.max and so its end; steps "
        f"1 to {trial.step - 1} were not seen: report each step as it is trained, upwards from 1"
    )


def _no_copies(state: SweepState) -> Iterator[str]:
    """Say that no member of an ended population copied another one, and why."""
    trials, scheduler = state.trials.values(), state.spec.scheduler
    # A scheduler of the user's own is not imported: its file may be gone, or on another machine.
    if not state.finished or ":" in scheduler.name or any(trial.parent for trial in trials):
        return
    if attribute(SCHEDULERS, scheduler, "explain_no_copies") is None:
        return
    policy = build(SCHEDULERS, scheduler)
    if isinstance(policy, Copying):
        yield policy.explain_no_copies(state.spec.plan, [trial.step for trial in trials])


def nearest_to_limits(state: SweepState) -> str:
    """Name the trials that are beyond the limits by least; empty: none is known to be."""
    limits = state.spec.bounds
    measured = [
        trial
        for trial in state.trials.values()
        if trial.state != "FAILED"
        and not trial.excluded
        and all(map(math.isfinite, trial.excess))
        and any(excess > 0 for excess in trial.excess)  # others were not picked for other reasons
    ]
    if not measured:
        return ""
    # Each limit counts in units of the largest excess over it.
    widest = [
        max(0.0, *(trial.excess[place] for trial in measured)) or 1.0
        for place in range(len(limits))
    ]

    def distance(trial: TrialState) -> float:
        pairs = zip(trial.excess, widest, strict=True)
        return sum(max(0.0, excess) / unit for excess, unit in pairs)

    named = []
    for trial in sorted(measured, key=distance)[:NEAREST]:
        pairs = zip(limits, trial.excess, strict=True)
        broken = [f"beyond {limit} by {excess:.4g}" for limit, excess in pairs if excess > 0]
        named.append(f"{trial.id} ({', '.join(broken)})")
    return f"nearest to the limits: {', '.join(named)}"
