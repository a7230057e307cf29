"""What a sweep came to, from Python: its best trial, or its front, and all trials as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hposvc import api, summary
from hposvc.spec import SweepSpec
from trainables.checkpoints.stores import is_url

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("trial", "state", "reason", "value", "step", "attempts", "gpu_hours")


class NoValue(LookupError):
    """No trial of the sweep has a value."""


class NoSingleBest(LookupError):
    """With several metrics there is a front of best trials."""


@dataclass(frozen=True)
class Best:
    """The best trial of a sweep."""

    trial: str
    params: Mapping[str, float | int | str | bool | None]
    value: float
    metrics: Mapping[str, float | None]  # of the step that the value is of
    step: int
    checkpoint: Path | str | None  # a folder or a store's URL; None: not kept, or there was none
    mlflow_run_id: str | None


@dataclass(frozen=True)
class Result:
    """What a sweep came to."""

    sweep: str  # its id
    state: str  # COMPLETED, STOPPED or FAILED
    record: api.Record

    @property
    def best(self) -> Best:
        """The best trial.

        Raises:
            NoValue: none reported a value, or keeps the limits.
            NoSingleBest: there are several metrics.
        """
        spec = self.record.state.spec
        if spec.several:
            names = " and ".join(metric.name for metric in spec.objectives)
            raise NoSingleBest(
                f"{self.sweep}: no trial is the best of {names}; take one of result.pareto, "
                "where none beats another in all of them"
            )
        found = self.record.front()
        if not found:
            failed = len(self.record.failures())
            what = "has a value within the limits" if spec.limits else "has a value"
            raise NoValue(
                f"{self.sweep}: no trial {what}, {failed} failed; "
                f"`hposvc logs {self.sweep}` shows why"
            )
        best = {name: value for name, value in found[0].items() if name != "sweep"}
        checkpoint = best.pop("checkpoint")
        kept = checkpoint is None or is_url(checkpoint)
        return Best(**best, checkpoint=checkpoint if kept else Path(checkpoint))

    @property
    def pareto(self) -> "pd.DataFrame":
        """The front: the trials that no other beats in one metric and equals in the rest.

        A row a trial, the best by the first metric first: `trial`, a column a metric, `step`,
        `checkpoint`, then a column a parameter. With a single metric the one row is the best.
        Names that are taken: as in `trials`.
        """
        import pandas as pd

        spec = self.record.state.spec
        columns = ["trial", *_headings(spec), "step", "checkpoint"]
        rows = [_row(found, spec, columns) for found in self.record.front()]
        return pd.DataFrame(rows, columns=None if rows else columns)

    def hypervolume(self, reference: Sequence[float] | Mapping[str, float] | None = None) -> float:
        """How much the front dominates, in the product of the metrics' units.

        Args:
            reference: the worst values that count, in the order of the metrics or by name, as they
                are reported. None: the worst of each metric among the completed trials; volumes of
                two sweeps compare only with the same reference.

        Raises:
            ValueError: the reference has other metrics than the sweep.
        """
        names = _names(self.record.state.spec)
        if isinstance(reference, Mapping):
            if {*reference} != {*names}:
                found = ", ".join(map(str, reference))
                raise ValueError(f"reference has {found}; give {', '.join(names)}")
            reference = [reference[name] for name in names]
        if reference is not None and len(reference) != len(names):
            raise ValueError(
                f"reference has {len(reference)} values; give one for each of {', '.join(names)}"
            )
        return summary.hypervolume(self.record.state, reference)

    @property
    def trials(self) -> "pd.DataFrame":
        """A row a trial: COLUMNS, then a column a parameter.

        With several metrics each has a column in place of `value`; one that is called like another
        column of this table or of `pareto` is `metrics.NAME`. A parameter that has the name of
        another column is `params.NAME`.
        """
        import pandas as pd

        spec = self.record.state.spec
        values = _headings(spec) if spec.several else ["value"]
        columns = [
            name for column in COLUMNS for name in (values if column == "value" else [column])
        ]
        return pd.DataFrame([_row(trial, spec, columns) for trial in self.record.trials()])


def _names(spec: SweepSpec) -> list[str]:
    return [metric.name for metric in spec.objectives]


def _headings(spec: SweepSpec) -> list[str]:
    """The metrics' columns, beside those that every table has."""
    taken = {*COLUMNS, "checkpoint"}
    return [f"metrics.{name}" if name in taken else name for name in _names(spec)]


def _row(trial: Mapping[str, Any], spec: SweepSpec, columns: Sequence[str]) -> dict[str, Any]:
    value, names = trial["value"], _headings(spec)
    values = value if spec.several and value is not None else [value] * len(names)
    cells = {**trial, **dict(zip(names, values, strict=True))}
    params = {
        f"params.{name}" if name in columns else name: value
        for name, value in trial["params"].items()
    }
    return {**{name: cells[name] for name in columns}, **params}
