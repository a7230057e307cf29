"""Faster improvement rate PBT (FIRE): some members are ranked by what their weights are good for.

Plain PBT is greedy: the member that lowers its learning rate first has the lowest loss, and is
copied, long before that is good for the end. Here the population has three parts.

* *Children* are a population as in pbt.py, ranked by their losses.
* *Parents* are another, ranked by what evaluators find. They copy each other alone, so that values
  which look worse now live on among them.
* An *evaluator* goes on from a parent's weights with the values of the best child, for an interval.
  The loss that it comes to is that parent's rank. Then it takes the parent that was evaluated least
  often. An evaluator among the best of the children and evaluators goes on as it is instead, and
  weak children copy it: so what parents have come to reaches the children.

Choices where this is simpler than the paper: two sub-populations instead of any number; parents are
compared by the losses after an interval with equal values, instead of by the slopes of smoothed
curves at equal losses. A ranking costs as much as the population is large.

Source: Dalibard & Jaderberg, Faster Improvement Rate Population Based Training (2021), §3.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from numpy.random import Generator

from hposvc.errors import Problem
from hposvc.schedulers.pbt import Pbt, Population
from hposvc.schedulers.pbt_mutation import members
from hposvc.schedulers.scheduler import Change, Closed, Fact, Ordered, Plan, Report, Scheduler
from searchers import Params, Space, Value, draw

Role = Literal["child", "parent", "evaluator"]
FEWEST: Mapping[Role, int] = {"child": 2, "parent": 2, "evaluator": 1}


@dataclass(frozen=True)
class Fire(Pbt):
    """Truncation selection with parents that are ranked by what evaluators find."""

    parents: float = 0.4  # their share of the population
    evaluators: float = 0.2  # and theirs
    name: ClassVar[str] = "fire"

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("parents", "evaluators"):
            if not 0 < getattr(self, key) < 1:
                raise ValueError(f"{key} is {getattr(self, key)}; choose a share in (0, 1)")
        if self.parents + self.evaluators >= 1:
            raise ValueError("parents and evaluators leave no children; choose less than 1 of both")

    def scheduler(self, plan: Plan) -> Scheduler:
        """Return a population of `plan.trials` members in three parts."""
        return _ThreeParts(self, plan, self.steps(plan))

    def role(self, number: int) -> Role:
        """Return the role of the member that begins as this number, from 0.

        The first members have roles in the same shares as all.
        """
        if _comes(number, self.evaluators):
            return "evaluator"
        number -= math.floor(number * self.evaluators)
        return "parent" if _comes(number, self.parents / (1 - self.evaluators)) else "child"

    def problems(self, space: Space, plan: Plan) -> Iterator[Problem]:
        """Yield the options that do not fit the sweep; paths start at the top of the spec."""
        yield from super().problems(space, plan)
        if plan.trials is None or plan.trials < 2:
            return  # told above
        roles = Counter(map(self.role, range(plan.trials)))
        for role, least in FEWEST.items():
            if roles[role] < least:
                message = f"is {plan.trials}, of which fire makes {roles[role]} of {least} {role}s"
                fix = "give more, or other shares of parents and evaluators"
                yield Problem(("trials", "max"), message, fix)


def _comes(number: int, share: float) -> bool:
    """Return whether this number, from 0, is one of a share that is spread evenly."""
    return math.floor((number + 1) * share + 1e-9) > math.floor(number * share + 1e-9)


@dataclass(frozen=True)
class Evaluation:
    """Go on from a parent's weights, with the values of a child."""

    donor: str
    policy: Fire
    child: Mapping[str, Value]  # its values; empty: no child is ranked, so the parent's stay

    def values(self, space: Space, params: Params, rng: Generator) -> Params:
        """Return the parent's values, with those that may change as the child has them."""
        names = [each for name in self.policy.mutate for each in members(space, name)]
        taken = {name: self.child[name] for name in names if name in self.child}
        known = {**params, **taken}
        return space.change(
            params, lambda name: known[name] if name in known else draw(space[name], rng.random())
        )


@dataclass
class _ThreeParts(Population):
    policy: Fire
    numbers: dict[str, int] = field(default_factory=dict)  # of members, in order of beginning
    params: dict[str, Params] = field(default_factory=dict)  # the present values of members
    worth: dict[str, float] = field(default_factory=dict)  # of parents: their evaluator's loss
    evaluations: dict[str, int] = field(default_factory=dict)  # of parents, begun ones too
    subjects: dict[str, str] = field(default_factory=dict)  # the parent of an evaluator's order

    def apply(self, fact: Fact) -> None:
        if not isinstance(fact, Closed):
            self.numbers.setdefault(fact.trial, len(self.numbers))
        if isinstance(fact, Ordered):
            self.params[fact.trial] = fact.params
            if fact.parent is not None:
                self._copy(fact.trial, fact.parent)
        super().apply(fact)

    def _copy(self, trial: str, donor: str) -> None:
        """Note that a member goes on from another's weights."""
        if self._role(trial) != "evaluator":
            self.worth.pop(trial, None)  # of weights that it has no more, as have its evaluators
            self.subjects = {name: of for name, of in self.subjects.items() if of != trial}
        elif self.subjects.get(trial) != donor:  # otherwise it tries again
            self.subjects[trial] = donor
            self.evaluations[donor] = self.evaluations.get(donor, 0) + 1

    def change(self, trial: str, donor: str) -> Change:
        if self._role(trial) != "evaluator":
            return super().change(trial, donor)
        children = (name for _, name in self.ranked if self._role(name) == "child")
        return Evaluation(donor, self.policy, self.params.get(next(children, ""), {}))

    def _role(self, trial: str) -> Role:
        return self.policy.role(self.numbers[trial])

    def _update_rank(self, report: Report) -> None:
        """Give the member its new rank, and the parent that it evaluated its worth."""
        if math.isinf(report.loss) or self.is_ranking_step(report.step):
            parent = self.subjects.pop(report.trial, None)
            if parent is not None:
                self.worth[parent] = report.loss
        super()._update_rank(report)

    def _choose_donor(self, trial: str, step: int) -> None:
        rivals = self._rivals(trial)
        size, names = self._strong(trial, rivals), [name for _, name in rivals]
        if self._role(trial) == "evaluator":
            parent = self._next_parent()
            if parent is not None and trial not in names[:size]:
                self.donors[trial] = parent
        elif size and trial in names:
            better = bisect_left(rivals, (rivals[names.index(trial)][0], ""))
            if better >= len(rivals) - size:
                self.donors[trial] = self._pick(trial, step, names[:size])

    def _rivals(self, trial: str) -> list[tuple[float, str]]:
        """Return the ranked members that a member is ranked among, best first."""
        if self._role(trial) != "parent":
            return [pair for pair in self.ranked if self._role(pair[1]) != "parent"]
        return sorted((loss, name) for name, loss in self.worth.items() if name in self.losses)

    def _strong(self, trial: str, rivals: list[tuple[float, str]]) -> int:
        """Return how many of a member's rivals are strong; equally many are weak."""
        if self._awaits_members:
            return self._share(len(rivals), self.plan.trials or 0)
        is_parent = self._role(trial) == "parent"
        group = [name for name in self.numbers if (self._role(name) == "parent") == is_parent]
        return self._share(len(rivals), len({*group} - self.gone))

    def _next_parent(self) -> str | None:
        """Return the parent with a checkpoint that was evaluated least often, or soon will be."""
        parents = [name for name in self.losses if self._role(name) == "parent"]
        chosen = [of for name, of in self.donors.items() if self._role(name) == "evaluator"]
        return min(
            parents,
            key=lambda name: (self.evaluations.get(name, 0) + chosen.count(name), name),
            default=None,
        )

    def _donor(self, trial: str, step: int) -> str | None:
        donor = self.donors.get(trial)
        if donor is None or donor in self.losses:
            return donor
        return self._next_parent() if self._role(trial) == "evaluator" else None
