"""To ask and tell without a sweep: `create` makes an `Optimizer`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast, overload

import numpy as np

from searchers.methods import METHODS, load, takes_several
from searchers.names import nearest
from searchers.objectives import Objectives, Outcome, are_finite, is_number
from searchers.options import build, check
from searchers.pareto import fronts, hypervolume
from searchers.searcher import Observation, Proposal, Searcher, call_rng
from searchers.space import Space
from searchers.values import Params


class Exhausted(Exception):
    """Every configuration of the space has been proposed."""


@dataclass(frozen=True)
class Trial(Proposal):
    """A proposal that was asked for, under the id by which its results are told."""

    id: str = field(kw_only=True)


@dataclass(frozen=True)
class Best:
    """One of the best trials so far, with its value in the user's own sign."""

    id: str
    params: Params
    value: float | tuple[float, ...]  # one number for each of several objectives


def create(
    method: str,
    space: Space,
    goal: str | Sequence[str] = "minimize",
    seed: int = 0,
    **options: object,
) -> "Optimizer":
    """An optimizer that searches by `method` (see `METHODS`, or `module:Class`).

    Raises:
        ValueError: no such method, option or goal, or options that do not suit the space.
    """
    searcher = build(method, options)
    check(searcher, space)
    if not isinstance(goal, str) and len(goal) > 1 and not takes_several(type(searcher)):
        able = ", ".join(name for name in METHODS if takes_several(load(name)))
        raise ValueError(f"method {method!r} takes one objective; for several use one of {able}")
    return Optimizer(searcher, space, goal, seed)


class Optimizer:
    """Asks a searcher for trials and remembers what they gave.

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
        self._limits = 0  # how many there are; 0: no trial was told by how much it exceeds them

    @property
    def history(self) -> tuple[Observation, ...]:
        """All trials in the order of proposal; losses are lower-is-better whatever the goal."""
        return tuple(self._observations.values())

    @property
    def best(self) -> Best | list[Best] | None:
        """The trial that was told the best value; None while none was.

        With several objectives it is the `front`. Trials that exceed a limit do not count.
        """
        if self._objectives.are_several:
            return self.front
        kept = self._kept()
        return self._best(min(kept, key=_losses)) if kept else None

    @property
    def front(self) -> list[Best]:
        """The trials that none dominates, in the order of proposal; with one goal, all the best."""
        kept = self._kept()
        rank_N = fronts([_losses(seen) for seen in kept])
        return [self._best(seen) for seen, rank in zip(kept, rank_N, strict=True) if rank == 0]

    def hypervolume(self, reference: Sequence[float] | None = None) -> float:
        """What the front dominates, up to the reference point, in the product of the units.

        Args:
            reference: one value for each objective, in the user's own sign; None: the worst that a
                trial was told, limits aside, so that the volume can be compared within this search
                alone.
        """
        if not self._objectives.are_several:
            raise ValueError("hypervolume: there is one goal; create with a list, or use best")
        kept = [_losses(seen) for seen in self._kept()]
        if not kept:
            return 0.0
        if reference is None:
            return hypervolume(kept, np.max([_losses(seen) for seen in self._done()], axis=0))
        return hypervolume(kept, self._objectives.losses(reference, "hypervolume"))

    def _done(self) -> list[Observation]:
        return [seen for seen in self.history if seen.state == "done"]

    def _kept(self) -> list[Observation]:
        """Those that were told a result within the limits."""
        return [seen for seen in self._done() if seen.keeps_limits]

    def _best(self, seen: Observation) -> Best:
        return Best(seen.id, seen.params, self._objectives.shown(_losses(seen)))

    @overload
    def ask(self) -> Trial: ...
    @overload
    def ask(self, n: int) -> list[Trial]: ...

    def ask(self, n: int | None = None) -> Trial | list[Trial]:
        """The next trial, or a list of the next n (fewer where the space ends).

        Raises:
            Exhausted: the space has no more configurations.
        """
        if n is not None and n < 1:
            raise ValueError(f"ask: n is {n}; ask for 1 or more")
        rng = call_rng(self._seed, len(self._observations))
        proposals = self._searcher.suggest(self.space, self.history, n or 1, rng)
        if not proposals:
            raise Exhausted(
                f"all configurations that the space has were proposed: {len(self._observations)}"
            )
        trials = [self._begin(proposal) for proposal in proposals]
        return trials if n is not None else trials[0]

    def report(self, trial: Trial | str, value: Outcome, step: int) -> None:
        """Note the value that a running trial has at a step (its fidelity).

        Of several objectives, all values of the last step are kept, and of steps before it the
        first value.
        """
        seen = self._pending(trial, "report")
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            raise ValueError(f"report: step is {step!r}; give a whole number from 0 on")
        if seen.curve and step <= seen.curve[-1][0]:
            raise ValueError(
                f"report: trial {seen.id} is at step {seen.curve[-1][0]} already; "
                f"step {step} would go back"
            )
        losses = self._objectives.losses(value, "report")
        curve = (*seen.curve, (step, losses[0] if are_finite(losses) else math.nan))
        kept = losses if self._objectives.are_several and are_finite(losses) else seen.losses
        self._observations[seen.id] = replace(seen, curve=curve, losses=kept)

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
            reason: why it failed or was stopped.
            excess: by how much the outcome exceeds each limit, in any unit; up to 0: it is kept.
                Of the same length in all trials, or empty where it is not known.
            cost: seconds.
        """
        seen = self._pending(trial, "tell")
        if cost is not None and not (is_number(cost) and 0 <= cost < math.inf):
            raise ValueError(f"tell: cost is {cost!r}; give seconds")
        exceeds = self._exceeds(excess)
        losses = None if value is None else self._objectives.losses(value, "tell")
        self._limits = self._limits or len(exceeds)
        seen = replace(seen, excess=exceeds, cost=cost)
        if losses is None or not are_finite(losses):
            why = reason or ("failed" if losses is None else "diverged")
            self._observations[seen.id] = replace(seen, state="failed", reason=why, losses=())
            return
        curve = seen.curve and (*seen.curve[:-1], (seen.curve[-1][0], losses[0]))
        done = replace(seen, state="done", reason=reason, curve=curve)
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
        """Take in a result that was found elsewhere; see `tell`."""
        self.space.validate(params)
        trial = self._begin(Proposal(dict(params)))
        try:
            self.tell(trial, value, excess=excess, cost=cost)
        except ValueError:
            del self._observations[trial.id]
            raise
        return trial

    def _exceeds(self, excess: object) -> tuple[float, ...]:
        """The excess over each limit, of which there are as many as other trials were told of."""
        if isinstance(excess, np.ndarray):
            excess = excess.tolist()
        is_list = isinstance(excess, Sequence) and not isinstance(excess, str)
        if not is_list or not all(map(is_number, cast(Sequence[object], excess))):
            raise ValueError(f"tell: excess is {excess!r}; give a list, a number for each limit")
        found = tuple(map(float, cast(Sequence[float], excess)))
        if found and self._limits not in (0, len(found)):
            raise ValueError(
                f"tell: excess has {len(found)} numbers, that of earlier trials {self._limits}; "
                "give one for each limit"
            )
        return found

    def _begin(self, proposal: Proposal) -> Trial:
        trial = Trial(proposal.params, proposal.note, id=str(len(self._observations)))
        self._observations[trial.id] = Observation(trial.id, trial.params, trial.note)
        return trial

    def _pending(self, trial: Trial | str, verb: str) -> Observation:
        name = trial if isinstance(trial, str) else trial.id
        if name not in self._observations:
            raise ValueError(
                f"{verb}: there is no trial {name!r}: {nearest(name, self._observations)}"
            )
        seen = self._observations[name]
        if seen.state != "pending":
            raise ValueError(f"{verb}: trial {name} has ended ({seen.state}); ask for another")
        return seen


def _losses(seen: Observation) -> tuple[float, ...]:
    """Of an ended trial, one for each objective."""
    if seen.losses:
        return seen.losses
    return () if seen.loss is None else (seen.loss,)
