"""Searches on problems that may have limits or two losses, told all that they can be told.

Nobody is given a penalty in place of limits, so a method that knows none is not among `LIMITED`.
"""

from typing import Any

from peers import roster
from peers.method import Params

from searchers import Optimizer
from searchers.methods import load_method
from suites.problem import Outcome, Problem

PLAIN = ("gp", "cmaes", "random", *roster.PEERS)
LIMITED = ("gp", "random", "optuna_tpe", "optuna_gp", "optuna_nsga2", "nevergrad")
TWO_LOSSES = ("gp", "nsga2", "random", "optuna_tpe", "optuna_gp", "nevergrad")
OURS = ("gp", "cmaes", "nsga2", "random")
OTHERS = {"optuna_nsga2": "peers.optuna:NSGA2"}  # of use with limits or several losses alone
ALL = (*OURS, *roster.PEERS, *OTHERS)


class Ours:
    """A method of this project."""

    def __init__(self, method: str, problem: Problem, seed: int) -> None:
        goal = "minimize" if problem.objectives == 1 else ["minimize"] * problem.objectives
        self.optimizer = Optimizer(load_method(method)(), problem.space, goal, seed)

    def ask(self) -> tuple[Params, Any]:
        trial = self.optimizer.ask()
        return trial.params, trial

    def tell(self, asked: Any, outcome: Outcome) -> None:
        self.optimizer.tell(asked, _value(outcome), excess=outcome.excess)


class Peer:
    """Another library's method; those that take limits or several losses are in the lists above."""

    def __init__(self, method: str, problem: Problem, seed: int, budget: int) -> None:
        several = {"objectives": problem.objectives} if problem.objectives > 1 else {}
        kind: Any = load_method(OTHERS.get(method) or roster.PEERS[method])
        self.method = kind(problem.space, seed, budget, **several)

    def ask(self) -> tuple[Params, Any]:
        params, asked = self.method.ask()
        return params, asked

    def tell(self, asked: Any, outcome: Outcome) -> None:
        limits = {"excess": outcome.excess} if outcome.excess else {}
        self.method.tell(asked, _value(outcome), **limits)


def start(method: str, problem: Problem, seed: int, budget: int) -> Ours | Peer:
    """Begin a search of `budget` evaluations."""
    if method in OTHERS or method in roster.PEERS:
        return Peer(method, problem, seed, budget)
    return Ours(method, problem, seed)


def missing(method: str) -> str | None:
    """Return why a method cannot be run here; None: it can."""
    return roster.missing(OTHERS.get(method, method))


def _value(outcome: Outcome) -> float | tuple[float, ...]:
    return outcome.losses if len(outcome.losses) > 1 else outcome.losses[0]
