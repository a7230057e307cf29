"""Ask-and-tell optimization without a sweep: `create` makes an `Optimizer`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast, overload

import numpy as np

from searchers.methods import METHODS, load_method, takes_several
from searchers.names import nearest
from searchers.objectives import Objectives, Outcome, are_finite, is_number
from searchers.options import build_searcher, check_searcher
from searchers.pareto import fronts, hypervolume
from searchers.searcher import Observation, Proposal, Searcher, call_rng, suggest_fixed
from searchers.space import Space
from searchers.values import Params


class Exhausted(Exception):
    """Raised when every configuration of the space has been proposed."""


@dataclass(frozen=True)
class Trial(Proposal):
    """A proposal that was asked for, with the id under which its results are told."""

    id: str = field(kw_only=True)


@dataclass(frozen=True)
class Best:
    """A best trial so far, with its value in the user's own sign."""

    id: str
    params: Params
    value: float | tuple[float, ...]  # a tuple with several objectives


def create(
    method: str,
    space: Space,
    goal: str | Sequence[str] = "minimize",
    seed: int = 0,
    **options: object,
) -> "Optimizer":
    """Return an optimizer that searches by `method` (see `METHODS`, or `module:Class`).

    Raises:
        ValueError: no such method, option or goal, or options that do not suit the space.
    """
    searcher = build_searcher(method, options)
    check_searcher(searcher, space)
    if not isinstance(goal, str) and len(goal) > 1 and not takes_several(type(searcher)):
        methods = ", ".join(name for name in METHODS if takes_several(load_method(name)))
        raise ValueError(f"method {method!r} takes one objective; for several use one of {methods}")
    return Optimizer(searcher, space, goal, seed)


class Optimizer:
    """Asks a searcher for trials and remembers their results.

    The same space, options, seed and sequence of calls give the same proposals. `goal` is one word,
    or a list of 2 to 4: then values are lists in that order, and the best is a Pareto front.
    """

    def __init__(
        self,
        searcher: Searcher,
        space: Space,
        goal: str | Sequence[str] = "minimize",
        seed: int = 0,
    ) -> None:
        if seed < 0:
            raise ValueError(f"seed is {seed}; give a whole number from 0 on")
        self.space = space
        self.goal = goal
        self._objectives = Objectives.of(goal)
        self._searcher = searcher
        self._seed = seed
        self._observations: dict[str, Observation] = {}  # in the order of proposal
        self._limits = 0  # the number of limits; 0: no trial was told an excess

    @property
    def history(self) -> tuple[Observation, ...]:
        """All trials in the order of proposal; losses are lower-is-better whatever the goal."""
        return tuple(self._observations.values())

    @property
    def best(self) -> Best | list[Best] | None:
        """The trial with the best value so far; None before the first result.

        With several objectives this is the `front`. Trials that exceed a limit do not count.
        """
        if self._objectives.are_several:
            return self.front
        feasible = self._within_limits()
        return self._as_best(min(feasible, key=_losses)) if feasible else None

    @property
    def front(self) -> list[Best]:
        """The trials that none dominates, in the order of proposal; with one goal, all the best."""
        feasible = self._within_limits()
        rank_N = fronts([_losses(seen) for seen in feasible])
        return [
            self._as_best(seen) for seen, rank in zip(feasible, rank_N, strict=True) if rank == 0
        ]

    def hypervolume(self, reference: Sequence[float] | None = None) -> float:
        """Return the volume that the front dominates, up to the reference point.

        The volume is in the product of the units.

        Args:
            reference: one value for each objective, in the user's own sign; None: the worst that a
                trial was told, limits aside, so that the volume can be compared within this search
                alone.
        """
        if not self._objectives.are_several:
            raise ValueError("hypervolume: there is one goal; create with a list, or use best")
        feasible = [_losses(seen) for seen in self._within_limits()]
        if not feasible:
            return 0.0
        if reference is None:
            return hypervolume(feasible, np.max([_losses(seen) for seen in self._done()], axis=0))
        return hypervolume(feasible, self._objectives.losses(reference, "hypervolume"))

    def _done(self) -> list[Observation]:
        return [seen for seen in self.history if seen.state == "done"]

    def _within_limits(self) -> list[Observation]:
        """Return the trials that were told a result within the limits."""
        return [seen for seen in self._done() if seen.keeps_limits]

    def _as_best(self, seen: Observation) -> Best:
        return Best(seen.id, seen.params, self._objectives.in_user_sign(_losses(seen)))

    @overload
    def ask(self, *, fixed: Params | None = None) -> Trial: ...
    @overload
    def ask(self, n: int, fixed: Params | None = None) -> list[Trial]: ...

    def ask(self, n: int | None = None, fixed: Params | None = None) -> Trial | list[Trial]:
        """Propose the next trial, or a list of the next n (fewer where the space ends).

        Args:
            n: None: one trial, which is no list.
            fixed: values that the trials are to have, such as {"lr": 1e-3}.

        Raises:
            Exhausted: the space has no more configurations, or none with the fixed values.
            SpaceError: no configuration has the fixed values.
            ValueError: the method does not keep fixed values.
        """
        if n is not None and n < 1:
            raise ValueError(f"ask: n is {n}; ask for 1 or more")
        rng = call_rng(self._seed, len(self._observations))
        proposals = suggest_fixed(
            self._searcher, self.space, self.history, fixed or {}, n or 1, rng
        )
        if not proposals:
            kept = fixed or {}
            count = sum(kept.items() <= seen.params.items() for seen in self.history)
            part = f" with {dict(kept)}" if kept else ""
            raise Exhausted(f"all configurations{part} that the space has were proposed: {count}")
        trials = [self._add_pending(proposal) for proposal in proposals]
        return trials if n is not None else trials[0]

    def report(self, trial: Trial | str, value: Outcome, step: int) -> None:
        """Note the value that a running trial has at a step (its fidelity).

        With several objectives, `value` has one for each.
        """
        seen = self._find_pending(trial, "report")
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            raise ValueError(f"report: step is {step!r}; give a whole number from 0 on")
        if seen.curve and step <= seen.curve[-1][0]:
            raise ValueError(
                f"report: trial {seen.id} is at step {seen.curve[-1][0]} already; "
                f"step {step} would go back"
            )
        losses = self._objectives.losses(value, "report")
        points = losses if are_finite(losses) else [math.nan] * len(losses)
        curves = seen.curves or ((),) * (len(losses) - 1)
        curve, *others = (
            (*earlier, (step, point))
            for earlier, point in zip((seen.curve, *curves), points, strict=True)
        )
        last_losses = losses if self._objectives.are_several and are_finite(losses) else seen.losses
        self._observations[seen.id] = replace(
            seen, curve=curve, curves=tuple(others), losses=last_losses
        )

    def tell(
        self,
        trial: Trial | str,
        value: Outcome | None,
        reason: str = "",
        excess: Sequence[float] = (),
        cost: float | None = None,
    ) -> None:
        """End a trial with its value; None: it failed, for `reason`; not finite: it diverged.

        The value of a trial that has reported counts at the last step that it reported.

        Args:
            trial: one that was asked for, or its id.
            value: a number, or a list with one for each of several objectives.
            reason: why the trial failed or was stopped.
            excess: by how much the outcome exceeds each limit, in any unit; up to 0: the limit is
                kept. Of the same length in all trials, or empty where it is not known.
            cost: seconds.
        """
        seen = self._find_pending(trial, "tell")
        if cost is not None and not (is_number(cost) and 0 <= cost < math.inf):
            raise ValueError(f"tell: cost is {cost!r}; give seconds")
        numbers = self._read_excess(excess)
        losses = None if value is None else self._objectives.losses(value, "tell")
        self._limits = self._limits or len(numbers)
        seen = replace(seen, excess=numbers, cost=cost)
        if losses is None or not are_finite(losses):
            cause = reason or ("failed" if losses is None else "diverged")
            self._observations[seen.id] = replace(seen, state="failed", reason=cause, losses=())
            return
        curve, *others = (
            earlier and (*earlier[:-1], (earlier[-1][0], loss))
            for earlier, loss in zip((seen.curve, *seen.curves), losses, strict=False)
        )
        done = replace(seen, state="done", reason=reason, curve=curve, curves=tuple(others))
        several = self._objectives.are_several
        self._observations[seen.id] = (
            replace(done, losses=losses) if several else replace(done, loss=losses[0])
        )

    def add(
        self,
        params: Params,
        value: Outcome | None,
        excess: Sequence[float] = (),
        cost: float | None = None,
    ) -> Trial:
        """Add a result that was found elsewhere; see `tell`."""
        flat = self.space.flat(params)
        self.space.validate(flat)
        trial = self._add_pending(Proposal(flat))
        try:
            self.tell(trial, value, excess=excess, cost=cost)
        except ValueError:
            del self._observations[trial.id]
            raise
        return trial

    def _read_excess(self, excess: object) -> tuple[float, ...]:
        """Return the excess over each limit, after checking that all trials have as many limits."""
        if isinstance(excess, np.ndarray):
            excess = excess.tolist()
        is_list = isinstance(excess, Sequence) and not isinstance(excess, str)
        if not is_list or not all(map(is_number, cast(Sequence[object], excess))):
            raise ValueError(f"tell: excess is {excess!r}; give a list, a number for each limit")
        numbers = tuple(map(float, cast(Sequence[float], excess)))
        if numbers and self._limits not in (0, len(numbers)):
            raise ValueError(
                f"tell: excess has {len(numbers)} numbers, that of earlier trials {self._limits}; "
                "give one for each limit"
            )
        return numbers

    def _add_pending(self, proposal: Proposal) -> Trial:
        trial = Trial(proposal.params, proposal.note, id=str(len(self._observations)))
        self._observations[trial.id] = Observation(trial.id, trial.params, trial.note)
        return trial

    def _find_pending(self, trial: Trial | str, verb: str) -> Observation:
        trial_id = trial if isinstance(trial, str) else trial.id
        if trial_id not in self._observations:
            raise ValueError(
                f"{verb}: there is no trial {trial_id!r}: {nearest(trial_id, self._observations)}"
            )
        seen = self._observations[trial_id]
        if seen.state != "pending":
            raise ValueError(f"{verb}: trial {trial_id} has ended ({seen.state}); ask for another")
        return seen


def _losses(seen: Observation) -> tuple[float, ...]:
    """Return the losses of an ended trial, one for each objective."""
    if seen.losses:
        return seen.losses
    return () if seen.loss is None else (seen.loss,)
