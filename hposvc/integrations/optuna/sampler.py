"""hposvc's searchers as a sampler of Optuna, for people who keep their own study.

study = optuna.create_study(sampler=hposvc.optuna.Sampler("gp", seed=0))
"""

import math
import secrets
import threading
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import intersection_search_space
from optuna.trial import FrozenTrial, TrialState

from hposvc.integrations.optuna.search_space import SearchSpace, domain
from searchers import (
    METHODS,
    Objectives,
    Observation,
    Proposal,
    are_finite,
    build_searcher,
    call_rng,
    check_searcher,
    load_method,
    takes_several,
)

PROPOSAL = "hposvc:proposal"  # system attribute of a trial: what the searcher proposed for it


class Sampler(BaseSampler):
    """A sampler of Optuna that proposes configurations with an hposvc searcher.

    The searcher learns from every trial of the study, whoever has sampled it: from complete ones,
    from pruned ones with what they have reported, from failed ones, and from running ones, near
    which it does not propose again. It searches the parameters that all complete trials have, with
    the same ranges; the parameters of the first trial, and those of some branches only, are sampled
    independently. What it proposes depends on the seed, the trial's number and the study alone, so
    a study in a storage can be continued in another process.

    Args:
        method: the name of a search method (`gp`, `tpe`, ...), or `module:Class`.
        seed: of all that is random; None: drawn.
        independent_sampler: samples what the searcher does not; None: Optuna's RandomSampler.
        options: of the method.

    Raises:
        ValueError: there is no such method or option.
    """

    def __init__(
        self,
        method: str = "auto",
        *,
        seed: int | None = None,
        independent_sampler: BaseSampler | None = None,
        **options: Any,
    ) -> None:
        if seed is not None and seed < 0:
            raise ValueError(f"seed is {seed}; give a whole number from 0 on")
        self._method = method
        self._searcher = build_searcher(method, options)
        self._seed = secrets.randbits(32) if seed is None else seed
        self._independent_sampler = independent_sampler
        self._lock = threading.Lock()  # so that threads see each other's proposals

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def __str__(self) -> str:
        return f"hposvc.optuna.Sampler({self._method!r})"

    def reseed_rng(self) -> None:
        """Reseed the independent sampler; ours draws by the numbers of the trials."""
        if self._independent_sampler is not None:
            self._independent_sampler.reseed_rng()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the parameters that all complete trials have, with the same ranges."""
        shared = intersection_search_space(study.get_trials(deepcopy=False))
        return {
            name: distribution
            for name, distribution in shared.items()
            if not distribution.single() and domain(distribution) is not None
        }

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the searcher's proposal; once all configurations were tried, one of them.

        Raises:
            ValueError: the method does not take so many objectives, or its options do not suit the
                search space.
        """
        objectives = self._objectives(study)
        if not search_space:
            return {}
        searched = SearchSpace(search_space)
        check_searcher(self._searcher, searched.space)
        with self._lock:
            trials = study.get_trials(deepcopy=False)
            others = sorted((other for other in trials if other.number != trial.number), key=_turn)
            turn = max(trial.number, 1 + max(map(_turn, others), default=-1))
            limits = sorted({name for other in others for name in other.constraints})
            observed = (_observation(other, searched, objectives, limits) for other in others)
            history = [seen for seen in observed if seen is not None]
            rng = call_rng(self._seed, trial.number)
            proposals = self._searcher.suggest(searched.space, history, 1, rng)
            if not proposals:
                warnings.warn(
                    f"all configurations of {', '.join(search_space)} were tried; {self} repeats "
                    "them at random from here on",
                    stacklevel=2,
                )
                proposals = [Proposal(searched.space.sample(rng), {"source": "repeat"})]
            _note(study, trial, searched, proposals[0], turn)
        return searched.decode(proposals[0].params)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return a value for a parameter that the searcher does not search.

        Raises:
            ValueError: the method does not take so many objectives.
        """
        self._objectives(study)
        # A generator for each value, so that the order of threads does not matter.
        seed = zlib.crc32(f"{self._seed} {trial.number} {param_name}".encode())
        sampler = self._independent_sampler or RandomSampler(seed)
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Pass the call on to the independent sampler."""
        if self._independent_sampler is not None:
            self._independent_sampler.before_trial(study, trial)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Pass the call on to the independent sampler."""
        if self._independent_sampler is not None:
            self._independent_sampler.after_trial(study, trial, state, values)

    def _objectives(self, study: Study) -> Objectives:
        """Return the objectives of a study, after checking that the method takes them."""
        goals = [direction.name.lower() for direction in study.directions]
        if len(goals) > 1 and not takes_several(type(self._searcher)):
            methods = ", ".join(name for name in METHODS if takes_several(load_method(name)))
            raise ValueError(
                f"the study has {len(goals)} objectives, but method {self._method!r} takes one; "
                f"for several use one of {methods}"
            )
        return Objectives.of(goals if len(goals) > 1 else goals[0])


def _turn(trial: FrozenTrial) -> int:
    """Return the place of a trial in the order of proposal.

    That is its number, unless another thread was proposed a trial of a higher number before it.
    """
    turn: int = trial.system_attrs.get(PROPOSAL, {}).get("turn", trial.number)
    return turn


def _note(
    study: Study, trial: FrozenTrial, searched: SearchSpace, proposal: Proposal, turn: int
) -> None:
    """Keep a proposal with its trial, for the proposals that follow it.

    A running trial shows a parameter only once the objective has asked for it.
    """
    record: dict[str, Any] = {
        "turn": turn,
        "names": searched.names,
        "params": dict(proposal.params),
        "note": dict(proposal.note),
    }
    study._storage.set_trial_system_attr(trial._trial_id, PROPOSAL, record)


def _observation(
    trial: FrozenTrial, searched: SearchSpace, objectives: Objectives, limits: Sequence[str]
) -> Observation | None:
    """Return a trial as searchers see it; None: it waits, or is not of the space.

    Args:
        trial: of the study.
        searched: the space.
        objectives: of the study.
        limits: names of all constraints in the study.
    """
    record = trial.system_attrs.get(PROPOSAL, {})
    proposed = record["params"] if record.get("names") == searched.names else {}
    ahead = {} if trial.state.is_finished() else proposed  # of what the objective has asked for
    params = {**ahead, **searched.encode(trial.params)}
    if trial.state == TrialState.WAITING or not searched.space.allows(params):
        return None
    note = record["note"] if proposed == params else {}
    seen = Observation(f"{trial.number}", params, note, cost=_seconds(trial))
    if not trial.state.is_finished():
        return replace(seen, curve=_curve(trial, objectives))
    values = _values(trial)
    losses = () if values is None else objectives.losses(values, f"trial {trial.number}")
    if not losses or not are_finite(losses):
        return replace(seen, state="failed", reason="diverged" if losses else "failed")
    seen = replace(
        seen,
        state="done",
        reason="rung" if trial.state == TrialState.PRUNED else "",
        excess=tuple(trial.constraints.get(name, math.nan) for name in limits),
    )
    if objectives.are_several:
        return replace(seen, losses=losses)
    curve = _curve(trial, objectives)
    at_end = curve and (*curve[:-1], (curve[-1][0], losses[0]))
    return replace(seen, loss=losses[0], curve=at_end)


def _values(trial: FrozenTrial) -> float | list[float] | None:
    """Return the outcome of a trial that has ended, a pruned one's at its last step.

    None: it has failed, or was pruned before it reported anything.
    """
    if trial.state == TrialState.COMPLETE:
        values: list[float] = trial.values
        return values[0] if len(values) == 1 else values
    if trial.state != TrialState.PRUNED or trial.last_step is None:
        return None
    return trial.intermediate_values[trial.last_step]


def _curve(trial: FrozenTrial, objectives: Objectives) -> tuple[tuple[int, float], ...]:
    """Return the losses that a trial has reported; with several objectives it reports none."""
    steps = sorted(trial.intermediate_values.items())
    losses = ((step, objectives.losses(value, "report")[0]) for step, value in steps)
    return tuple((step, loss if math.isfinite(loss) else math.nan) for step, loss in losses)


def _seconds(trial: FrozenTrial) -> float | None:
    """Return how long a trial took, in seconds; None: it runs."""
    return None if trial.duration is None else trial.duration.total_seconds()
