"""The summary of a sweep for people and programs; the page `json` describes it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hposvc.events import DriverState, error_line
from hposvc.schedulers.scheduler import WithRungs
from hposvc.spec import SweepSpec
from hposvc.spec.metrics import Metric
from hposvc.spec.registry import SCHEDULERS, build
from hposvc.state.answers import (
    Best,
    BestTrials,
    Counts,
    FinalistEstimate,
    Progress,
    Proposals,
    Trial,
)
from hposvc.state.finalists import of_best, seeds_text
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialPhase, TrialState
from hposvc.text import count, energy, finite, listed, number
from searchers import closest, hypervolume
from trainables.contract import FOREIGN, is_url

INTERRUPTED = "INTERRUPTED"  # never recorded: derived from the lease at each look
NAMED = 3  # sweeps that a line names
PHASES: tuple[TrialPhase, ...] = ("RUNNING", "PAUSED", "COMPLETED", "STOPPED", "FAILED")


def status(sweep: str, state: SweepState, runs: Mapping[str, str], driver: DriverState) -> Progress:
    """Return a sweep's status in a few figures."""
    counts = {phase.lower(): count for phase, count in counted(state, driver).items()}
    reasons = fallbacks(state)
    return Progress(
        sweep=sweep,
        state=phase(state, driver),
        reason=state.reason,
        trials=Counts(total=len(state.trials), **counts),
        best=best(sweep, state, runs),
        elapsed_s=round(state.worked_s, 3),
        queued_s=round(state.queued_s, 3),
        gpu_hours=state.gpu_hours,
        energy_kwh=state.energy_kwh,
        co2_kg=state.spec.price.co2_kg(state.energy_kwh),
        unmeasured=state.unmeasured,
        money=state.money,
        currency=state.spec.price.currency,
        proposals=Proposals(
            waited=state.waits,
            waited_s=round(state.waited_s, 3),
            fallbacks=len(reasons),
            fallback_reason=reasons[-1] if reasons else None,
            proposed=len(state.proposals.begun),
            queued=len(state.proposals.waiting),
        ),
        driver=driver,
        learned_from=earlier_trials(state),
    )


def energy_used(state: SweepState) -> list[str]:
    """Return the energy, its CO2 if that is known, and what is not measured; empty: nobody said."""
    used, missing = state.energy_kwh, state.unmeasured
    if used is None:
        return ["not measured", missing] if missing else []
    co2_kg = state.spec.price.co2_kg(used)
    co2 = [] if co2_kg is None else [f"{number(co2_kg, 3)} kg CO2"]
    return [energy(used), *co2, *([f"without {missing}"] if missing else [])]


def earlier_trials(state: SweepState) -> dict[str, int]:
    """Return how many trials of each earlier sweep this one learns from; empty: none, or not yet.

    A sweep of which nothing could be taken has 0.
    """
    if state.earlier is None:
        return {}
    sweeps = state.spec.warm_start.sweeps if state.spec.warm_start else ()
    names = Counter(seen.id.rpartition("/")[0] for seen in state.earlier)
    return {name: names[name] for name in dict.fromkeys([*sweeps, *names])}


def learned_from(state: SweepState) -> str:
    """Return what a sweep takes from earlier ones, as text; empty: nothing."""
    trials = {sweep: trials for sweep, trials in earlier_trials(state).items() if trials}
    return f"{count(sum(trials.values()), 'trial')} of {listed(trials, NAMED)}" if trials else ""


def phase(state: SweepState, driver: DriverState) -> str:
    """Return the sweep's state for people: INTERRUPTED if it is RUNNING without a driver."""
    return _seen(state.state, driver)


def counted(state: SweepState, driver: DriverState) -> dict[str, int]:
    """Return the number of trials in each state that people see."""
    counts: dict[str, int] = {phase: state.trials.counts.get(phase, 0) for phase in PHASES}
    running = counts["RUNNING"]
    alive = driver == "alive"
    return {**counts, "RUNNING": running * alive, INTERRUPTED: running * (not alive)}


def _seen(recorded: str, driver: DriverState) -> str:
    return INTERRUPTED if recorded == "RUNNING" and driver != "alive" else recorded


def best(sweep: str, state: SweepState, runs: Mapping[str, str]) -> BestTrials:
    """Return the best trial, or None if no trial has a value; with several metrics, the front."""
    best_trials = front(sweep, state, runs)
    return best_trials if state.spec.several else next(iter(best_trials), None)


def front(sweep: str, state: SweepState, runs: Mapping[str, str]) -> list[Best]:
    """Return the unbeaten trials: one for one metric; for several, sorted by the first one."""
    trials = sorted((state.trials[name] for name in state.front), key=lambda trial: trial.losses)
    rows = [_best(sweep, state, trial, runs.get(trial.id)) for trial in trials]
    result = of_best(state)  # if there is one, the front is the best finalist alone
    if result is None:
        return rows
    estimate = FinalistEstimate(**result.data())
    return [replace(row, estimate=estimate) for row in rows]


def bests(state: SweepState) -> list[float]:
    """Return the best value of each metric, in its own sign; empty: no trial has values."""
    trials = [state.trials[name] for name in state.front]
    losses = zip(*(trial.losses for trial in trials), strict=True)
    return [
        metric.loss(min(column))
        for metric, column in zip(state.spec.objectives, losses, strict=bool(trials))
    ]


def front_hypervolume(state: SweepState, reference: Sequence[float] | None = None) -> float:
    """Return the volume between the front and a reference point, in the metrics' units.

    Args:
        reference: a value of each metric, as users report it. None: the worst values of the
            completed trials; the volume is 0 if there are none.
    """
    metrics = state.spec.objectives
    if reference is None:
        done = [trial.values for trial in state.trials.values() if trial.state == "COMPLETED"]
        reference = worst(metrics, [values for values in done if values])
    if reference is None:
        return 0.0
    corner = [metric.loss(value) for metric, value in zip(metrics, reference, strict=True)]
    return hypervolume([state.trials[name].losses for name in state.front], corner)


def worst(
    metrics: Sequence[Metric], results: Sequence[Sequence[float]]
) -> tuple[float, ...] | None:
    """Return the worst value of each metric; None: there are no results."""
    columns = zip(metrics, zip(*results, strict=True), strict=bool(results))
    return tuple(max(column, key=metric.loss) for metric, column in columns) or None


def named(spec: SweepSpec, values: Sequence[float]) -> float | Sequence[float] | None:
    """Return values as JSON: one, or a list in the order of the metrics; null: none."""
    if spec.several:
        return list(values) or None
    return next(iter(values), None)


def _best(sweep: str, state: SweepState, trial: TrialState, run: str | None) -> Best:
    selected = trial.selected
    assert selected is not None  # the best trials have values
    spec = state.spec
    step, metrics = selected
    saved = trial.checkpoint_at(step)
    if saved is not None and saved.size == 0 and not saved.path.startswith(FOREIGN):
        saved = None  # a simulated checkpoint has a name and no files
    return Best(
        sweep=sweep,
        trial=trial.id,
        params=dict(trial.reported_params),
        value=named(spec, trial.values),
        metrics=finite(metrics),
        step=step,
        trained_to_end=trial.completed(spec.last_step),
        checkpoint=None if saved is None else _location(saved.path),
        mlflow_run_id=run,
        baseline=trial.id == state.replicates.baseline_trial,
        device=", ".join(trial.uses) or None,
    )


def _location(path: str) -> Path | str:
    """Return the folder of a checkpoint, or its URL in a store."""
    return path if is_url(path) else Path(path)


def eta_of(spec: SweepSpec) -> int | None:
    """Return how much longer each rung is than the one before; None: there are no rungs.

    None as well if the scheduler's code is missing, as may be for a sweep on a cluster.
    """
    try:
        eta = getattr(build(SCHEDULERS, spec.scheduler), "eta", None)
    except ValueError:
        return None
    return eta if isinstance(eta, int) and eta > 1 else None


def rung_steps(spec: SweepSpec) -> tuple[int, ...]:
    """Return the steps at which the scheduler decides; empty: it has no rungs."""
    try:
        policy = build(SCHEDULERS, spec.scheduler)
    except ValueError:
        return ()
    plan = spec.plan
    return policy.rungs(plan) if isinstance(policy, WithRungs) and plan.until else ()


def untrained(sweep: str, state: SweepState) -> str:
    """Say that the best trial of an ended sweep stands at a rung, and how it goes on.

    Empty where the best trial was not left waiting to be promoted.
    """
    spec = state.spec
    best = None if state.best is None else state.trials[state.best]
    if best is None or best.ended_from != "PAUSED" or spec.fidelity is None or spec.finalists:
        return ""
    eta = eta_of(spec) or 2
    needed = eta ** (len(rung_steps(spec)) - 1)
    more = max(eta, needed - len(state.trials))
    unit = spec.fidelity.unit
    return (
        f"the best trial, {best.id}, was trained to {unit} {best.step} of {spec.fidelity.max}: too "
        f"few trials reached {unit} {best.step} for one to be promoted. More trials make it go on: "
        f"hposvc extend {sweep} --trials {more}; finalists: {{top: 1, seeds: 1}} in a spec always "
        "trains the best to the end"
    )


def fallbacks(state: SweepState) -> list[str]:
    """Return the reason of each proposal for which the searcher's model had no answer."""
    notes = (trial.note for trial in state.trials.values())
    return [str(note.get("reason", "")) for note in notes if note.get("source") == "fallback"]


def describe_fallbacks(state: SweepState) -> str:
    """Say how many proposals are quasi-random for lack of a model's; empty: none is."""
    reasons = fallbacks(state)
    if not reasons:
        return ""
    total = len(state.trials)
    return (
        f"{len(reasons)} of {total} proposals fell back to the quasi-random design; the last time: "
        f"{reasons[-1]}"
    )


def unsearched(state: SweepState) -> list[str]:
    """Return warnings of parameters that trials drew, and of those that no trial asked for."""
    names = [name for trial in state.trials.values() for name in trial.suggested]
    drawn = [describe_unsearched(name, state.spec) for name in dict.fromkeys(names)]
    return [*drawn, *map(describe_unused, unused(state))]


def unused(state: SweepState) -> list[str]:
    """Return the searched parameters that no trial which had them has asked for."""
    ended = [trial for trial in state.trials.values() if trial.unused is not None]
    asked = {name for trial in ended for name in trial.params if name not in (trial.unused or ())}
    never = {name for trial in ended for name in trial.unused or () if name not in asked}
    return [name for name in state.spec.space.searched if name in never]


def describe_unused(name: str) -> str:
    """Say that a parameter is searched for nothing, and what to do."""
    return (
        f"{name} is searched for nothing: no trial has asked for it; unless a branch does that no "
        "trial has come to, take it out of the sweep's parameters, or name it as the objective does"
    )


def describe_unsearched(name: str, spec: SweepSpec) -> str:
    """Say that a parameter is not searched, and what in the spec may be misspelled."""
    alike = closest(name, spec.space.searched)
    remedy = f"did the spec mean it by {alike!r}?" if alike else "add it there to have it searched"
    return (
        f"{name} is drawn at random, not searched: the trainable suggests it, and the sweep's "
        f"parameters lack it; {remedy}"
    )


def trials(
    state: SweepState, runs: Mapping[str, str], driver: DriverState = "alive"
) -> list[Trial]:
    """Return all trials, in the order proposed."""
    return [trial_row(state, trial, runs, driver) for trial in state.trials.values()]


def failures(state: SweepState) -> Sequence[TrialState]:
    """Return the failed trials."""
    trials = state.trials.values()
    return [trial for trial in trials if trial.state == "FAILED" and not trial.excluded]


def trial_row(
    state: SweepState, trial: TrialState, runs: Mapping[str, str], driver: DriverState
) -> Trial:
    """Return the facts about one trial."""
    gpus, rank_s = state.spec.resources.gpus_per_worker, trial.cost_at(state.now)
    reason, message = trial.end_reason
    runs_kwh = (run.energy_kwh for run in (trial, *trial.seeds))
    used = [kwh for kwh in runs_kwh if kwh is not None]
    return Trial(
        trial=trial.id,
        state=_seen(trial.state, driver),
        reason=reason,
        detail=error_line(message),
        params=dict(trial.reported_params),
        value=named(state.spec, trial.values),
        kept=trial.kept if trial.excess else None,
        metrics=finite(trial.metrics),
        step=trial.step,
        attempts=trial.attempts,
        shrink=trial.shrink,
        duration_s=round(trial.seconds_at(state.now), 3),
        gpu_hours=rank_s * gpus / 3600,
        energy_kwh=sum(used) if used else None,
        money=state.spec.money(rank_s),
        mlflow_run_id=runs.get(trial.id),
        parent=trial.parent,
        repeat_of=trial.repeat_of,
        memo=trial.memo,
        seeds=len(trial.runs),
        seed_values=[named(state.spec, run.own_values) for run in trial.runs[1:] and trial.runs],
        baseline=trial.id == state.replicates.baseline_trial,
        device=", ".join(trial.uses) or None,
        node=trial.node or None,
    )


def trial_values(trial: TrialState) -> str:
    """Return a trial's values, as in `loss 0.31, latency_ms 12`; empty: the trial has none.

    Means over seeds say so: `loss 0.31 ± 0.02 over 3 seeds`.
    """
    pairs = zip(trial.objectives, trial.values, strict=False)
    values = ", ".join(f"{metric.name} {number(value)}" for metric, value in pairs)
    return values + seeds_text(trial)
