"""The result of a sweep, for Python: its best trial or its front, and all trials as a table."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from hposvc.errors import NO_VALUE
from hposvc.events import Event, Ordered, Reported
from hposvc.open_sweep import Record
from hposvc.spec import SweepSpec
from hposvc.state import summary
from hposvc.state.answers import Best, Trial, values_of
from hposvc.state.doubts import nearest_to_limits
from hposvc.text import number
from searchers import as_cell

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    *("trial", "state", "reason", "value", "step", "attempts", "duration_s", "gpu_hours"),
    *("money", "baseline", "device"),
)
TOP = 10  # trials shown in a notebook


class NoValue(LookupError):
    """No trial of the sweep has a value."""

    exit_code = NO_VALUE


class NoSingleBest(LookupError):
    """The sweep has several metrics, so it has a front of best trials rather than one."""


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a sweep, complete or so far."""

    sweep: str  # the sweep's id
    state: str  # COMPLETED, STOPPED or FAILED; from a handle also RUNNING, PAUSED or INTERRUPTED
    record: Record
    events: Callable[[], Iterable[Event]] = tuple  # reads all events, for `curves`

    def __repr__(self) -> str:
        return f"Result({self.sweep}: {self.state}, {self._describe()})"

    def _repr_html_(self) -> str:
        spec, names = self.record.state.spec, _headings(self.record.state.spec)
        column = names[0] if spec.several else "value"
        falling = spec.objectives[0].goal == "minimize"
        frame = self.trials.drop(columns=["attempts", "gpu_hours", "money", "baseline", "device"])
        frame = frame[[name for name in frame if not str(name).startswith("metrics.")]]
        best = frame.sort_values(column, ascending=falling).head(TOP)
        table = best.to_html(index=False, na_rep="", float_format="{:.5g}".format)
        return (
            f"<p><b>{escape(self.sweep)}</b>: {self.state}, {escape(self._describe())}</p>{table}"
        )

    def _describe(self) -> str:
        """Return the number of trials and the best value, in words."""
        spec, front = self.record.state.spec, self.record.front()
        count = f"{len(self.record.state.trials)} trials"
        if not front:
            return f"{count}, no value"
        if spec.several:
            return f"{count}, {len(front)} on the Pareto front"
        best, name = front[0], spec.objectives[0].name
        place = f"({best.trial}, {spec.unit} {best.step})"
        return f"{count}, best {name}={number(values_of(best.value)[0])} {place}"

    @property
    def best(self) -> Best:
        """The best trial.

        Raises:
            NoValue: no trial has reported a value within the limits.
            NoSingleBest: the sweep has several metrics.
        """
        spec = self.record.state.spec
        if spec.several:
            names = " and ".join(metric.name for metric in spec.objectives)
            raise NoSingleBest(
                f"{self.sweep}: no trial is the best of {names}; take one of result.pareto, "
                "where none beats another in all of them"
            )
        front = self.record.front()
        if not front:
            failures = self.record.failures()
            first = next((f"; {trial}: {why}" for trial, why in failures.items()), "")
            condition = "has a value within the limits" if spec.limits else "has a value"
            nearest = nearest_to_limits(self.record.state)
            raise NoValue(
                f"{self.sweep}: no trial {condition}, {len(failures)} failed; "
                f"`hposvc logs {self.sweep}` shows why{first}{nearest and f'; {nearest}'}"
            )
        return front[0]

    @property
    def pareto(self) -> "pd.DataFrame":
        """The Pareto front as a pandas DataFrame: the trials that no other trial dominates.

        One row per trial, sorted by the first metric: `trial`, a column for each metric, `step`,
        `checkpoint`, then a column for each parameter. With a single metric, the only row is the
        best trial. Columns of the same name are told apart as in `trials`.
        """
        import pandas as pd

        spec = self.record.state.spec
        columns = ["trial", *_headings(spec), "step", "checkpoint"]
        rows = [_row(trial, spec, columns) for trial in self.record.front()]
        return pd.DataFrame(rows, columns=None if rows else columns)

    def hypervolume(self, reference: Sequence[float] | Mapping[str, float] | None = None) -> float:
        """Return the volume that the front dominates, in the product of the metrics' units.

        Args:
            reference: the worst values that count, in the order of the metrics or by name, with
                the signs in which they are reported. None: the worst value of each metric among
                the completed trials. The volumes of two sweeps can be compared only with the same
                reference.

        Raises:
            ValueError: the reference has other metrics than the sweep.
        """
        names = _names(self.record.state.spec)
        if isinstance(reference, Mapping):
            if {*reference} != {*names}:
                given = ", ".join(map(str, reference))
                raise ValueError(f"reference has {given}; give {', '.join(names)}")
            reference = [reference[name] for name in names]
        if reference is not None and len(reference) != len(names):
            raise ValueError(
                f"reference has {len(reference)} values; give one for each of {', '.join(names)}"
            )
        return summary.front_hypervolume(self.record.state, reference)

    @property
    def trials(self) -> "pd.DataFrame":
        """All trials as a pandas DataFrame, one row each.

        The columns are `trial`, `state`, `reason`, `value`, `step`, `attempts`, `duration_s`,
        `gpu_hours`, `money`, `baseline`, `device`, one for each parameter, then `metrics.NAME` for
        each further metric of the trial's last report. `duration_s` is the time for which the
        trial's ranks were at work. `baseline` says whether it is the trial that measures the
        metric's noise, and `device` the model of its GPU, or of its CPU in a sweep without GPUs;
        None: unknown.

        With several metrics, each metric has a column in place of `value`; a metric with the name
        of another column of this table or of `pareto` is `metrics.NAME`. A parameter with the name
        of another column is `params.NAME`.
        """
        import pandas as pd

        spec = self.record.state.spec
        values = _headings(spec) if spec.several else ["value"]
        columns = [
            name for column in COLUMNS for name in (values if column == "value" else [column])
        ]
        own = set(_names(spec))  # these have their columns
        rows = []
        for trial in self.record.trials():
            others = {name: value for name, value in trial.metrics.items() if name not in own}
            row = _row(trial, spec, columns)
            rows.append(row | {f"metrics.{name}": value for name, value in others.items()})
        return pd.DataFrame(rows, columns=None if rows else columns)

    @property
    def curves(self) -> "pd.DataFrame":
        """All reports as a pandas DataFrame, one row each.

        The columns are `trial`, `step`, `time` (seconds since the start), and the metrics.

        If a trial reported a step twice, the first report counts, as everywhere. Reports of
        finalists' replicates are left out.
        """
        import pandas as pd

        begun: float | None = None
        replicates: set[int] = set()
        rows: dict[tuple[str, int], dict[str, object]] = {}
        for event in self.events():
            begun = event.time if begun is None else begun
            if isinstance(event, Ordered) and event.order.replicate:
                replicates.add(event.order.id)
            if isinstance(event, Reported) and event.order not in replicates:
                row = {"trial": event.trial, "step": event.step, "time": event.time - begun}
                rows.setdefault((event.trial, event.step), {**event.metrics, **row})
        frame = pd.DataFrame(rows.values())
        first = ["trial", "step", "time"]
        if not rows:
            return pd.DataFrame(columns=first)
        others = [name for name in frame if name not in first]
        return frame[[*first, *others]].sort_values(["trial", "step"], ignore_index=True)


def _names(spec: SweepSpec) -> list[str]:
    return [metric.name for metric in spec.objectives]


def _headings(spec: SweepSpec) -> list[str]:
    """Return the metrics' column names; a metric named like another column gets a prefix."""
    taken = {*COLUMNS, "checkpoint"}
    return [f"metrics.{name}" if name in taken else name for name in _names(spec)]


def _row(trial: Trial | Best, spec: SweepSpec, columns: Sequence[str]) -> dict[str, Any]:
    names = _headings(spec)
    values = values_of(trial.value) or [None] * len(names)
    cells = {**vars(trial), **dict(zip(names, values, strict=True))}
    params = {
        f"params.{name}" if name in columns else name: as_cell(value)
        for name, value in trial.params.items()
    }
    return {**{name: cells[name] for name in columns}, **params}
