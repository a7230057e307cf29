"""The answer to a person or an agent that proposes a configuration: what the model thinks of it.

The models are those of `gp`, whatever method searches (searchers/explain). They predict the value
without noise that a trial has at the sweep's last step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hposvc.errors import Problem, SpecError
from hposvc.open_sweep import Record
from hposvc.spec import SweepSpec
from hposvc.spec.registry import SEARCHERS, trait
from hposvc.state.summary import named
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialPhase, TrialState
from searchers import (
    Params,
    Searcher,
    Space,
    SpaceError,
    Value,
    call_rng,
    identity,
    suggest_fixed,
    warm_started,
)

if TYPE_CHECKING:
    from searchers.explain.explanation import Prediction

FILLS = 1  # sets the generators of what is filled in apart from those of proposals


@dataclass(frozen=True)
class NearestTrial:
    """The tried trial that differs least: a sum over parameters, each in shares of its range."""

    trial: str
    distance: float  # another category, or a parameter that one of them lacks, counts 1
    differs: Mapping[str, tuple[Value, Value]]  # its value, and the one proposed
    value: float | Sequence[float] | None  # None: it has no value
    state: TrialPhase


@dataclass(frozen=True)
class ProposalAnswer:
    """The models' prediction for a configuration, and when its trial begins."""

    sweep: str
    params: Params
    filled: tuple[str, ...]  # the parameters that were not given
    step: int | None  # of which the prediction is; None: the end of a trial without steps
    predicted: Mapping[str, "Prediction"]  # by metric; empty: the models know too little
    unknown: str  # why there is no prediction; empty: there is one
    better: float | None  # probability that it beats `best`; None: unknown, or several metrics
    best: str | None  # the best trial so far
    best_value: float | None  # as measured
    best_mean: float | None  # that of `predicted` for it, without noise
    nearest: NearestTrial | None  # None: nothing was tried
    refused: str  # why it can't be queued; empty: it can
    turn: int  # its trial begins when so many have begun, at least, and a slot is free
    begun: int  # trials so far
    room: int | None  # trials that there can be; None: no limit
    queued: bool = False


def assess(record: Record, given: Params) -> ProposalAnswer:
    """Return what the models think of a configuration, after filling in what is not given.

    Args:
        given: values of some parameters, or all.

    Raises:
        SpecError: no configuration of the sweep has the given values.
    """
    state, spec = record.state, record.state.spec
    given = spec.space.flat(given)
    try:
        params = complete(state, given)
    except SpaceError as error:
        raise SpecError([Problem.of_text(error.message, *error.path)]) from error
    predicted, unknown, better, best_mean = _predictions(state, params)
    best = None if state.best is None else state.trials[state.best]
    ahead = [spec.space.key(each) for each in record.proposed]  # no driver has taken them
    waiting = len(state.proposals.waiting) + len(ahead)
    is_ahead = spec.space.key(params) in ahead
    searched = spec.space.searched
    return ProposalAnswer(
        sweep=record.row.id,
        params=params,
        filled=tuple(name for name in params if name not in given and name in searched),
        step=spec.last_step,
        predicted=predicted,
        unknown=unknown,
        better=better,
        best=state.best,
        best_value=best.values[0] if best else None,
        best_mean=best_mean,
        nearest=nearest(spec, [*state.trials.values()], params),
        refused=state.refusal(params) or ("it is in the queue already" if is_ahead else ""),
        turn=max(
            state.proposals.begins_after(waiting, spec.trials.proposed),
            len(state.trials) + waiting,
            len(spec.first_points),
        ),
        begun=len(state.trials),
        room=spec.trials.max,
    )


def complete(state: SweepState, given: Params) -> dict[str, Value]:
    """Return a whole configuration: what is not given is the model's best choice.

    Raises:
        SpaceError: no configuration of the sweep has the given values.
    """
    spec, history = state.spec, state.history()
    rng = call_rng(spec.seed, len(history), FILLS)
    whole = spec.space.complete(given, rng)
    if all(name in given for name in whole if name in spec.space.searched):
        return whole
    from searchers.gp.searcher import GaussianProcess  # loads SciPy

    gp = spec.searcher() if trait(SEARCHERS, spec.search, "completes") else GaussianProcess()
    searcher: Searcher = warm_started(gp, state.earlier or ())
    proposals = suggest_fixed(searcher, spec.space, history, given, 1, rng)
    return dict(proposals[0].params) if proposals else whole  # all that there are were tried


def nearest(spec: SweepSpec, trials: list[TrialState], params: Params) -> NearestTrial | None:
    """Return the trial whose configuration is nearest; None: there are no trials."""
    if not trials:
        return None
    by_trial = [(distances(spec.space, trial.params, params), trial) for trial in trials]
    apart, trial = min(by_trial, key=lambda pair: sum(pair[0].values()))
    differs = {
        name: (trial.params.get(name), params.get(name))
        for name in sorted(apart, key=lambda name: -apart[name])
    }
    value = named(spec, trial.values)
    return NearestTrial(trial.id, sum(apart.values()), differs, value, trial.state)


def distances(space: Space, one: Params, other: Params) -> dict[str, float]:
    """Return how far two configurations are apart in each searched parameter that differs."""
    unit_D = abs(space.encode(one) - space.encode(other))
    apart = dict(zip(space.searched, unit_D.tolist(), strict=True))
    return {
        # All but choices without an order can be more or less apart.
        name: apart[name]
        if name in one and name in other and getattr(space[name], "ordered", True)
        else 1.0
        for name in space.searched
        if identity(one.get(name)) != identity(other.get(name))
    }


def _predictions(
    state: SweepState, params: Params
) -> tuple[dict[str, "Prediction"], str, float | None, float | None]:
    """Return each metric's prediction, why there is none, the chance to beat the best, its mean."""
    from searchers import Explanation

    spec, history = state.spec, state.history()
    goals = [metric.goal for metric in spec.objectives]
    predicted, better, best_mean = {}, None, None
    try:
        for place, metric in enumerate(spec.objectives):
            model = Explanation.of(spec.space, history, goals, place)
            expected = model.predict(params)
            predicted[metric.name] = expected
            if state.best is not None:
                best = state.trials[state.best].params
                better, best_mean = model.chance_better(params, best), model.predict(best).mean
    except ValueError as error:
        return {}, f"{error}".removeprefix("explain: "), None, None
    return predicted, "", better, best_mean
