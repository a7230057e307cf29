"""Optuna's objectives, unchanged, run by our worker: functions that take a `trial`.

Optuna is not imported; the objective does that where it needs it. Each `trial.report` is a step,
whatever number the objective gives it, and the value that the objective returns is its last report.

A parameter that the sweep lacks, such as one of a branch that nobody had seen, is drawn here. The
sweep's seed, the trial and the parameter's name decide its value, so every rank and every order of
the trial has the same, after a kill at any moment too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trainables.drawing import draw_choice, draw_float, draw_int
from trainables.functions import WorkerSession
from trainables.metrics import NoNumber, number_of
from trainables.stop_signals import StopTrial
from trainables.worker import Diverged, Params, ReportError, Worker

PRUNED = "optuna.exceptions.TrialPruned"
LONGEST_NAME = 250  # characters of a parameter's name, as a server takes it
ROUNDING = 1e-9  # of a range: 0.1 + 0.2 is more than 0.3
PUBLIC = (
    *("suggest_float", "suggest_int", "suggest_categorical", "report", "should_prune"),
    *("set_user_attr", "set_constraint", "number", "params", "user_attrs", "constraints"),
)


class ObjectiveTrial:
    """The trial that an objective is called with, in place of Optuna's.

    Its values are those of the sweep's trial, or are decided as they are asked for. It reports to
    the sweep, and `should_prune` is true once the sweep's scheduler has ended the trial.
    """

    def __init__(self, params: Params, worker: Worker) -> None:
        self.params: dict[str, Any] = {}  # what the objective has asked for
        self.user_attrs: dict[str, Any] = {}
        self.constraints: dict[str, float] = {}
        self._values = params
        self._worker = worker
        self.session = WorkerSession(worker)
        self._reported: dict[str, Any] = {}  # the last report
        self._steps: set[int] = set()  # the objective's own numbers of steps
        self.stopped: StopTrial | None = None  # why the trial ends

    @property
    def number(self) -> int:
        """The trial's number, from 0 on: 6 for t0007."""
        digits = "".join(filter(str.isdigit, self._worker.trial))
        return int(digits) - 1 if digits else 0

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Return the trial's value of a real number."""
        if low != high and self._lacks(name):
            declaration = _declaration("float", low, high, step, log)
            self._decide(name, lambda seed: draw_float(seed, low, high, step, log), declaration)
        value = self._value(name, low)
        return float(_within(name, value, low, high))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """Return the trial's value of a whole number."""
        if low != high and self._lacks(name):
            declaration = _declaration("int", low, high, None if step == 1 else step, log)
            self._decide(name, lambda seed: draw_int(seed, low, high, step, log), declaration)
        value = self._value(name, low)
        return int(_within(name, value, low, high))

    def suggest_categorical(self, name: str, choices: Iterable[Any]) -> Any:
        """Return the trial's choice."""
        allowed = list(choices)
        if len(allowed) > 1 and self._lacks(name):
            _check_values(name, allowed)
            self._decide(name, lambda seed: draw_choice(seed, allowed), {"values": allowed})
        value = self._value(name, allowed[0])
        matches = [choice for choice in allowed if _plain(choice) == _plain(value)]
        if not matches:
            raise ReportError(
                f"{name} is {value!r}, and the objective suggests one of {allowed}; give it one "
                "list of choices, and a constraint for what must not be combined"
            )
        return value if value in allowed else matches[0]  # a tuple, which a journal keeps as a list

    def report(self, value: Any, step: int) -> None:
        """Report the value, or values, of a step; a step that was reported before is ignored."""
        if step in self._steps:
            return
        self._steps.add(step)
        self._send(self._named(value))

    def should_prune(self) -> bool:
        """Return whether the sweep's scheduler has ended the trial."""
        return self.stopped is not None

    def set_user_attr(self, key: str, value: Any) -> None:
        """Record a number as a metric of the next report; print anything else to the log."""
        self.user_attrs[key] = value
        if not _is_number(value):
            print(f"{key}: {value}")  # noqa: T201 - of the trial's log

    def set_constraint(self, key: str, value: float) -> None:
        """Record a metric of the next report, on which the sweep may have a limit."""
        self.constraints[key] = float(value)

    def finish(self, returned: Any) -> None:
        """Report what the objective returned, unless that is what it reported last."""
        if returned is None:
            return
        if self._extended(self._named(returned)) != self._reported:
            self._send(self._named(returned))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a trial of a sweep has no {name!r}; it has {', '.join(PUBLIC)}. A callback or a "
            "study that needs more of Optuna runs in Optuna, with hposvc.optuna.Sampler"
        )

    def _lacks(self, name: str) -> bool:
        """Return whether neither the sweep nor the trial has decided a parameter."""
        return name not in self._values and name not in self.params

    def _decide(
        self, name: str, draw: Callable[[str], Any], declaration: Mapping[str, object]
    ) -> None:
        """Draw a parameter that the sweep lacks, and record it."""
        worker = self._worker
        if not (isinstance(name, str) and 0 < len(name) <= LONGEST_NAME):
            limit = f"of 1 to {LONGEST_NAME} characters"
            raise ReportError(f"the objective suggests {name!r}; give it a name {limit}")
        try:
            value = draw(f"{worker.sweep_seed}/{worker.trial}/{name}")
        except ValueError as error:
            raise ReportError(f"the objective suggests {name!r}: {error}") from error
        self.params[name] = value
        print(  # noqa: T201 - of the trial's log
            f"{name}: {value!r}, decided in the trial; to have it searched, give it to the sweep "
            f"as a parameter: {name}: {dict(declaration)}"
        )
        worker.suggests(name, value, declaration)

    def _value(self, name: str, only: Any) -> Any:
        """Return a parameter's value; `only`: that of a range of one value, which is not drawn."""
        self.params.setdefault(name, self._values.get(name, only))
        return self.params[name]

    def _send(self, metrics: Mapping[str, Any]) -> None:
        if self.stopped is not None:
            raise self.stopped
        self._reported = self._extended(metrics)
        try:
            self.session.report(self._reported, None, None)
        except StopTrial as stop:
            self.stopped = stop

    def _extended(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Return metrics with the constraints, and with the user attributes that are numbers."""
        attributes = {key: value for key, value in self.user_attrs.items() if _is_number(value)}
        return {**attributes, **self.constraints, **metrics}

    def _named(self, value: Any) -> Mapping[str, Any]:
        """Return values under the names of the sweep's metrics."""
        names = self._worker.metrics or ("value",)
        if isinstance(value, Mapping):
            return value
        values = [value] if isinstance(value, str) or not isinstance(value, Sequence) else value
        if len(values) != len(names):
            raise ReportError(
                f"the objective gives {len(values)} values, and the sweep has the metrics "
                f"{', '.join(names)}; give a value for each, in this order"
            )
        return dict(zip(names, map(_cast, values), strict=True))


def bind(objective: Callable[[Any], Any], own: Params) -> Callable[[Worker], None]:
    """Return the function of a worker that runs an objective on a rank."""

    def train(worker: Worker) -> None:
        trial = ObjectiveTrial(own, worker)
        try:
            returned = objective(trial)
        except Exception as error:
            kinds = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
            if PRUNED not in kinds:
                raise
            returned = None
            if not trial.should_prune() and worker.reported is None:
                raise Diverged("the objective pruned it before it reported a value") from error
        finally:
            worker.unused = tuple(name for name in own if name not in trial.params)
        if not trial.should_prune():
            trial.finish(returned)
        if trial.stopped is not None:
            raise trial.stopped

    return train


def _is_number(value: object) -> bool:
    return not isinstance(number_of(value), NoNumber)


def _cast(value: Any) -> Any:
    """Return a value as Optuna takes it: text that is a number, too."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _check_values(name: str, allowed: Sequence[object]) -> None:
    """Check that the choices are of kinds that can be recorded."""
    for value in allowed:
        if not _can_be_recorded(value):
            raise ReportError(
                f"{name} has the choice {value!r} ({type(value).__name__}); suggest numbers, text, "
                "bool or None, or lists of them: a name, for example, and look the object up"
            )


def _can_be_recorded(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_can_be_recorded, value))
    return value is None or type(value) in (bool, int, str, float)


def _plain(value: Any) -> Any:
    """Return a value as a journal has it: tuples become lists."""
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _within(name: str, value: float, low: float, high: float) -> float:
    """Return a value of a range.

    Raises:
        ReportError: it is outside, as the range depends on other values.
    """
    slack = ROUNDING * (high - low)
    if not low - slack <= value <= high + slack:
        raise ReportError(
            f"{name} is {value}, and the objective suggests {low} to {high}; give it one range, "
            "and a constraint for what must not be combined"
        )
    return value


def _declaration(
    kind: str, low: float, high: float, step: float | None, log: bool
) -> dict[str, object]:
    """Return a range as a spec declares it."""
    declaration: dict[str, object] = {"min": low, "max": high, "type": kind}
    if step is not None:
        declaration["step"] = step
    if log:
        declaration["log"] = True
    return declaration
