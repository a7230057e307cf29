"""Hyperband: brackets of successive halving, from many short trials to few long ones.

With R = last/first, bracket s (s = s_max, …, 0; s_max = floor(log_eta(R))) begins with
n = ceil((s_max + 1)/(s + 1) * eta^s) trials at step last/eta^s, and its i-th rung lies at
last/eta^(s - i), rounded down: the lowest at `first` if R is a power of eta, the highest always
at `last`. When the n_i = floor(n/eta^i) trials of a rung have all paused there or left, the best
floor(n/eta^(i+1)) go on, and the others are stopped at once. Bracket 0 runs its trials straight
to the end. Bracket 0 is followed by bracket s_max again, as long as there are new trials.
(Table 1 of the paper, and some programs, round (s_max + 1)/(s + 1) before they multiply.)

Choices that the paper leaves open:

* Slots never idle while a rung is undecided: a free slot goes to the oldest bracket with a trial to
  promote, otherwise to a new trial, which joins the next bracket if all brackets before are full.
  A bracket waits for its own trials only, for instance for one that has to be retried.
* A trial that left or diverged ranks last at its rung but counts there: the rung promotes as many
  trials as without the loss. A trial leaving after its rung's decision is not replaced.
* If the trials run out, the last bracket is decided with the trials it has: n is their number, and
  each rung promotes at least one trial while any has a finite loss. So even a bracket of two trials
  trains one of them to the end.
* Trials with equal losses rank in the order in which they came to the rung.
* A failed trial that is retried returns to the rung that it was heading for. If other trials have
  gone on from there meanwhile, it goes on if it would have gone on then: if its rank among the
  trials compared there, itself included, is no lower than the number that the rung promotes.
* With several metrics the trials of a rung are ranked front by front (rung_ranking.py). All trials
  that no other trial of the rung dominates go on, even if the rung would promote fewer.

Source: Li et al., Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization
(JMLR 2018), Algorithm 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from hposvc.errors import Problem
from hposvc.schedulers.hyperband_bracket import Bracket, BracketShape, bracket_shape
from hposvc.schedulers.scheduler import (
    Advance,
    Closed,
    Decision,
    Fact,
    NewTrial,
    Ordered,
    Plan,
    Report,
    Running,
    Scheduler,
    SearchDone,
    TrialStop,
    Wait,
)
from searchers import COUNT, AtMost, Space


@dataclass(frozen=True)
class Hyperband:
    """Successive halving in several brackets, some of which judge trials early and some late."""

    eta: Annotated[int, AtMost(COUNT)] = 3  # one trial in eta goes on from a rung
    # Use at most this many values of s, from s_max down; None: all.
    brackets: Annotated[int, AtMost(COUNT)] | None = None
    # Longer trials would need other brackets than those that the trials were assigned to.
    fixed_length: ClassVar[bool] = True
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.eta < 2:
            raise ValueError(
                f"eta is {self.eta}; choose a whole number from 2 up (the paper has 3)"
            )
        if self.brackets is not None and self.brackets < 1:
            raise ValueError(
                f"brackets is {self.brackets}; choose 1 or more, or leave it out for all of them"
            )

    def scheduler(self, plan: Plan) -> Scheduler:
        return _Brackets(self._shapes(plan), plan.metrics)

    def rungs(self, plan: Plan) -> tuple[int, ...]:
        """Return the rungs of the first bracket; every other bracket has some of them."""
        return self._shapes(plan)[0].steps

    def problems(self, space: Space, plan: Plan) -> Iterator[Problem]:
        """Yield a length of trials in which there is no room for two rungs."""
        if plan.first * self.eta > plan.last:
            message = (
                f"is {plan.first}, and {plan.first}·{self.eta} is beyond max, {plan.last}: "
                "no trial would be stopped early"
            )
            most = plan.last // self.eta
            remedy = f"give {most} or less, or a longer max" if most else "give a longer max"
            yield Problem(("fidelity", "min"), message, f"{remedy}, or scheduler fifo")

    def _shapes(self, plan: Plan) -> tuple[BracketShape, ...]:
        s_max = 0
        while plan.first * self.eta ** (s_max + 1) <= plan.last:
            s_max += 1
        shapes = tuple(bracket_shape(s, s_max, self.eta, plan.last) for s in range(s_max, -1, -1))
        return shapes[: self.brackets]


@dataclass(frozen=True)
class Bohb(Hyperband):
    """Hyperband whose trials a model proposes; `search.method` is the model.

    The model learns from the highest rung that enough trials have reached (searchers/fidelity.py).
    Source: Falkner et al., BOHB: Robust and Efficient Hyperparameter Optimization at Scale
    (ICML 2018), section 4: Hyperband decides how long each trial runs, the model which ones run.
    """

    needs_model: ClassVar[bool] = True


@dataclass
class _Brackets(Running):
    shapes: tuple[BracketShape, ...]
    metrics: int = 1
    begun: int = 0  # number of brackets begun
    filling: Bracket | None = None  # the bracket that new trials join
    live: dict[int, Bracket] = field(default_factory=dict)  # by number; one more than run, at most
    bracket_of: dict[str, Bracket] = field(default_factory=dict)  # the bracket of every trial

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        if isinstance(fact, Ordered) and fact.trial not in self.bracket_of:
            self._add_new(fact.trial)
        bracket = self.filling if isinstance(fact, Closed) else self.bracket_of.get(fact.trial)
        if bracket is None:
            return
        bracket.apply(fact)
        if self.filling is not None and not self.filling.takes_trials:
            self.filling = None
        if bracket.over:
            self.live.pop(bracket.number, None)

    def _add_new(self, trial: str) -> None:
        """Assign a new trial to the bracket being filled.

        The last trial may be ordered after the sweep was closed, and so after a first decision.
        """
        if self.filling is None:
            shape = self._shape_of_next
            self.filling = Bracket(self.begun, shape, self.metrics, full=self.closed)
            self.begun += 1
        self.live[self.filling.number] = self.bracket_of[trial] = self.filling

    @property
    def _shape_of_next(self) -> BracketShape:
        return self.shapes[self.begun % len(self.shapes)]

    def next(self) -> NewTrial | Advance | Wait | SearchDone:
        for bracket in self.live.values():
            for trial, until in bracket.due.items():
                return Advance(trial, until)
        if self.closed:
            return self.idle_move()
        shape = self._shape_of_next if self.filling is None else self.filling.shape
        return NewTrial(shape.steps[0])

    def judge(self, report: Report) -> Decision:
        return Decision("continue", "rung", f"runs to its rung, {report.step}")

    def trials_to_stop(self) -> list[TrialStop]:
        return [stop for bracket in self.live.values() for stop in bracket.stops.values()]

    def max_concurrency(self) -> int:
        return sum(bracket.max_concurrency for bracket in self.live.values())
