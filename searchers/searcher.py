"""What a searcher sees and says, and `Optimizer`: to ask and tell without a sweep."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, overload

import numpy as np
from numpy.random import Generator

from searchers.methods import load
from searchers.names import nearest
from searchers.space import Space
from searchers.values import Params

State = Literal["pending", "done", "failed"]
Note = Mapping[str, object]  # JSON values


@dataclass(frozen=True)
class Observation:
    """What a searcher may see of a trial."""

    id: str
    params: Params
    note: Note = field(default_factory=dict)  # what the searcher said with its proposal
    loss: float | None = None  # lower is better; None: none yet, or failed
    curve: tuple[tuple[int, float], ...] = ()  # (step, loss), steps increasing
    state: State = "pending"
    reason: str = ""  # why it failed or was stopped: oom, diverged, rung, ...
    cost: float | None = None  # seconds
    losses: tuple[float, ...] = ()  # one for each of several objectives; `loss` is None then
    excess: tuple[float, ...] = ()  # by how much each limit was exceeded; up to 0: it was kept


@dataclass(frozen=True)
class Proposal:
    """A configuration to try, and why: the note is journaled and given back in the history."""

    params: Params
    note: Note = field(default_factory=dict)


class Searcher(Protocol):
    """Proposes configurations: a pure function of the space, the history and the generator.

    A class attribute `uses_results = False` says that proposals depend on earlier proposals alone,
    so that they can be made long before they are needed.
    """

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        """The next n configurations, none of which is in the history or proposed twice.

        Args:
            space: what to search.
            history: every trial so far, pending ones included, in the order of proposal.
            n: how many are wanted.
            rng: the only source of randomness, made anew for each call (`call_rng`).

        Returns:
            n proposals; fewer, or none, when the space has no more configurations.
        """
        ...


class Exhausted(Exception):
    """Every configuration of the space has been proposed."""


@dataclass(frozen=True)
class Trial(Proposal):
    """A proposal that was asked for, under the id by which its results are told."""

    id: str = field(kw_only=True)


@dataclass(frozen=True)
class Best:
    """The best trial so far, with its value in the user's own sign."""

    id: str
    params: Params
    value: float


def call_rng(seed: int, proposed: int) -> Generator:
    """The generator of the call that comes after `proposed` trials."""
    return np.random.default_rng([seed, proposed])


def create(
    method: str, space: Space, goal: str = "minimize", seed: int = 0, **options: object
) -> "Optimizer":
    """An optimizer that searches by `method` (see `METHODS`, or `module:Class`)."""
    kind = load(method)
    known = [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    for name in options:
        if name not in known:
            raise ValueError(f"method {method!r} has no option {name!r}: {nearest(name, known)}")
    return Optimizer(kind(**options), space, goal, seed)


class Optimizer:
    """Asks a searcher for trials and remembers what they gave.

    The same space, options, seed and sequence of calls give the same proposals.
    """

    def __init__(
        self, searcher: Searcher, space: Space, goal: str = "minimize", seed: int = 0
    ) -> None:
        if not isinstance(goal, str):
            raise ValueError(f"goal is {goal!r}: several objectives are not there yet; give one")
        if goal not in ("minimize", "maximize"):
            raise ValueError(f"goal is {goal!r}; write minimize or maximize")
        if seed < 0:
            raise ValueError(f"seed is {seed}; give a whole number from 0 on")
        self.space = space
        self.goal = goal
        self._searcher = searcher
        self._sign = 1.0 if goal == "minimize" else -1.0
        self._seed = seed
        self._observations: dict[str, Observation] = {}  # in the order of proposal

    @property
    def history(self) -> tuple[Observation, ...]:
        """All trials in the order of proposal; losses are lower-is-better whatever the goal."""
        return tuple(self._observations.values())

    @property
    def best(self) -> Best | None:
        """The trial that was told the best value; None while none was."""
        told = [(seen.loss, seen) for seen in self.history if seen.loss is not None]
        if not told:
            return None
        loss, seen = min(told, key=lambda pair: pair[0])
        return Best(seen.id, seen.params, self._sign * loss)

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

    def report(self, trial: Trial | str, value: float, step: int) -> None:
        """Note the value that a running trial has at a step (its fidelity)."""
        seen = self._pending(trial, "report")
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            raise ValueError(f"report: step is {step!r}; give a whole number from 0 on")
        if seen.curve and step <= seen.curve[-1][0]:
            raise ValueError(
                f"report: trial {seen.id} is at step {seen.curve[-1][0]} already; "
                f"step {step} would go back"
            )
        point = (step, self._loss(value, "report"))
        self._observations[seen.id] = replace(seen, curve=(*seen.curve, point))

    def tell(self, trial: Trial | str, value: float | None, reason: str = "") -> None:
        """End a trial with its value; None: it failed, for `reason`; not finite: it diverged.

        The value of a trial that has reported counts at the last step that it reported.
        """
        seen = self._pending(trial, "tell")
        loss = None if value is None else self._loss(value, "tell")
        if loss is None or not math.isfinite(loss):
            why = reason or ("failed" if loss is None else "diverged")
            self._observations[seen.id] = replace(seen, state="failed", reason=why)
            return
        curve = seen.curve and (*seen.curve[:-1], (seen.curve[-1][0], loss))
        done = replace(seen, state="done", reason=reason, loss=loss, curve=curve)
        self._observations[seen.id] = done

    def add(self, params: Params, value: float) -> Trial:
        """Take in a result that was found elsewhere."""
        self.space.validate(params)
        trial = self._begin(Proposal(dict(params)))
        self.tell(trial, value)
        return trial

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

    def _loss(self, value: object, verb: str) -> float:
        if isinstance(value, Iterable) and not isinstance(value, str):
            raise ValueError(f"{verb}: several objectives are not there yet; give one number")
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise ValueError(f"{verb}: value is {value!r}; give a number, or None if it failed")
        return self._sign * float(value)
