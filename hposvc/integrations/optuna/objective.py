"""Optuna's objectives as sweeps: what they suggest becomes the sweep's parameters."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from hposvc.errors import fail
from hposvc.python.sweep import Sweep
from hposvc.reporting.result import Result
from searchers import (
    Choice,
    Constant,
    Domain,
    Leaf,
    Params,
    Space,
    SpaceError,
    Value,
    define_by_run,
)
from trainables.load import is_objective

Objective = Callable[[Any], Any]
MOST_VALUES = 16  # of a choice or whole number, all of which are tried
MOST_CALLS = 100


def run(
    objective: Objective,
    n_trials: int = 100,
    *,
    direction: str = "minimize",
    directions: Sequence[str] | None = None,
    metric_names: Sequence[str] | None = None,
    parameters: Mapping[str, object] | None = None,
    home: Path | str | None = None,
    address: str | None = None,
    progress: bool = True,
    **sections: Any,
) -> Result:
    """Run an objective as a sweep, as `study.optimize(objective, n_trials)` does as a study.

    Args:
        objective: a function, or another callable object, that takes a trial.
        n_trials: how many trials; fewer if the parameters have no more combinations.
        direction: minimize or maximize.
        directions: one for each of several values that the objective returns, up to 4.
        metric_names: of the values; None: `value`, or `value_0`, `value_1`, ...
        parameters: of the sweep, as in a spec; None: those that `parameters(objective)` finds.
        home: folder of the sweeps; None: HPOSVC_HOME, or ~/.hposvc.
        address: address of a Ray cluster; None: start Ray on this machine.
        progress: print the sweep's id, its progress and its summary on stderr.
        sections: further keywords of `hposvc.Sweep`: fidelity, scheduler, search, ...

    Raises:
        SpecError: the spec is wrong, or the parameters can't be found.
        Interrupted: by Ctrl-C; the sweep can be resumed.
    """
    goals = list(directions) if directions is not None else [direction]
    names = metric_names or value_names(len(goals))
    if len(names) != len(goals):
        raise fail(f"has {len(names)} names for {len(goals)} values", "metric_names")
    metrics = [{"name": name, "goal": goal} for name, goal in zip(names, goals, strict=True)]
    named: dict[str, Any] = {"metrics": metrics} if len(metrics) > 1 else {"metric": metrics[0]}
    trials = {"max": n_trials, **sections.pop("trials", {})}
    found = find_parameters(objective) if parameters is None else parameters
    sweep = Sweep(_function(objective), parameters=found, trials=trials, **named, **sections)
    return sweep.run(home=home, address=address, progress=progress)


def find_parameters(objective: Objective, seconds: float = 10.0) -> dict[str, object]:
    """Return what an objective suggests, as the `parameters` of a spec.

    The objective is called once, and then once more for each other value of the choices and small
    whole numbers that it suggests, since what it suggests further may depend on them. A call ends
    at the first report, or when nothing was suggested for some time (in the main thread).

    Args:
        objective: what takes a trial.
        seconds: the time after the last suggestion at which a call is ended.

    Raises:
        SpecError: no parameters and conditions describe what it suggests, or it opens too many
            branches.
    """
    try:
        with define_by_run.named(objective):
            return Space(define_by_run.describe(_leaves(objective, seconds))).to_dict()
    except SpaceError as error:
        fix = "or give parameters: {...}, which are not looked for then"
        raise fail(f"{error}", "parameters", fix=fix) from error


class _Ended(BaseException):
    """Raised in an objective that has said enough."""


class _Probe(define_by_run.Trial):
    """A trial that only looks at what is suggested; it has all that an objective may call."""

    number = 0

    def __init__(self, values: Params, suggested: Callable[[], None]) -> None:
        super().__init__(self._choose)
        self._given = values
        self._suggested = suggested
        self.user_attrs: dict[str, Any] = {}
        self.constraints: dict[str, float] = {}

    @property
    def params(self) -> dict[str, Any]:
        return dict(self._values)

    def report(self, value: Any, step: int) -> None:
        raise _Ended

    def should_prune(self) -> bool:
        raise _Ended

    def set_user_attr(self, key: str, value: Any) -> None:
        self.user_attrs[key] = value

    def set_constraint(self, key: str, value: float) -> None:
        self.constraints[key] = value

    def leaf(self) -> Leaf:
        """Return what was suggested, and the values that further suggestions may depend on."""
        taken = {name: self._values[name] for name, each in self._domains.items() if is_small(each)}
        return Leaf(self._domains, taken)

    def _choose(self, name: str, domain: Domain) -> Value:
        self._suggested()
        given = self._given.get(name)
        if name in self._given and domain.problem(given) is None:
            return given
        # The middle of a real range; otherwise the first value, which costs least of a size.
        return domain.from_unit(0.5) if domain.count is None else domain.from_unit(0.0)


def _leaves(objective: Objective, seconds: float) -> list[Leaf]:
    """Return what is suggested with each value of each choice and small number."""
    leaves = [_call(objective, {}, seconds)]
    varied: set[str] = set()
    for leaf in leaves:  # which grows
        for name in [name for name in leaf.taken if name not in varied]:
            varied.add(name)
            for value in leaf.suggested[name].grid(1):
                if value != leaf.taken[name]:
                    leaves.append(_call(objective, {**leaf.taken, name: value}, seconds))
                if len(leaves) > MOST_CALLS:
                    message = f"opens more than {MOST_CALLS} branches; suggest fewer choices"
                    raise SpaceError((), message)
    return leaves


def _call(objective: Objective, values: Params, seconds: float) -> Leaf:
    """Call an objective until it reports, returns, fails or suggests no more.

    Raises:
        Exception: the objective's own, where it fails before it suggests anything.
    """
    with _time_limit(seconds) as restart:
        probe = _Probe(values, restart)
        try:
            objective(probe)
        except _Ended:
            pass
        except SpaceError:
            raise
        except Exception:  # with these values, or since a probe is no trial of Optuna's
            if not probe.params:
                raise
    return probe.leaf()


@contextmanager
def _time_limit(seconds: float) -> Iterator[Callable[[], None]]:
    """Raise `_Ended` in the block some time after the last call of what this yields."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise _Ended

    def restart() -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)

    before = signal.signal(signal.SIGALRM, end)
    try:
        yield restart
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def value_names(values: int) -> list[str]:
    """Return the names of so many values that have none."""
    return ["value"] if values == 1 else [f"value_{index}" for index in range(values)]


def is_small(domain: Domain) -> bool:
    """Return whether all values of a domain are tried."""
    if isinstance(domain, Constant) or domain.count is None:
        return False
    return isinstance(domain, Choice) or domain.count <= MOST_VALUES


def _function(objective: Objective) -> Objective:
    """Return the objective as a function of a `trial`, which a sweep can name or pickle.

    A sweep tells an objective from other functions by the name of its argument, which is free here.
    """
    if hasattr(objective, "__qualname__") and is_objective(objective):
        return objective

    def call(trial: Any) -> Any:
        return objective(trial)

    return call
