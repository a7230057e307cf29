"""The report of a sweep, or of several: what came out, why, and how to get it again.

The HTML is one file that needs no network: style, scripts, pictures and data are within it. Data of
many trials are compressed; the page unpacks them where it shows them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata, resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hposvc.analysis.findings import why
from hposvc.analysis.forecast.kept import Accuracy, accuracy
from hposvc.journal.home import Home
from hposvc.journal.journal import SweepRow
from hposvc.open_sweep import OpenSweep
from hposvc.reporting.chart import Chart, packed
from hposvc.reporting.charts import charts, draw, draw_for_screens
from hposvc.reporting.comparison import Compared, side_by_side
from hposvc.reporting.comparison_checks import ComparedSweep
from hposvc.reporting.history import History
from hposvc.reporting.prose import prose
from hposvc.spec.metrics import Metric
from hposvc.spec.parsing.document import to_yaml
from hposvc.state import summary
from hposvc.state.answers import Best, values_of
from hposvc.state.finalists import seeds_text
from hposvc.state.sweep import SweepState
from hposvc.text import amount, duration, finite, number, value_text
from hposvc.tracking.mlflow_server import hide_passwords

STILL = 20  # trials in the table that needs no JavaScript
REAL_TIME = 1e8  # seconds; smaller times are those of a simulated clock

SHOWN_ELSEWHERE = ("best", "wrong", "reproduce")  # topics that the report has places for


@dataclass(frozen=True)
class ReportFigure:
    """A figure of a sweep on the report's first screen."""

    name: str
    text: str
    note: str = ""


@dataclass(frozen=True)
class Column:
    """A column of the table of trials."""

    title: str
    values: Sequence[Any]
    number: bool = True
    wrap: bool = False


@dataclass
class Section:
    """A sweep in a report."""

    row: SweepRow
    history: History
    phase: str
    runs: Mapping[str, str] = field(default_factory=dict)  # MLflow's
    forecast: Accuracy | None = None  # None: it had no plan, or says nothing of it

    @classmethod
    def read(cls, sweep: OpenSweep, home: Home | None = None) -> "Section":
        """Read a sweep, wherever its journal is.

        Args:
            home: where plans are, to say how good the sweep's was; None: do not look for it.

        Raises:
            NotFound: there is no such sweep.
        """
        record, history = sweep.record_as(History)
        forecast_accuracy = None if home is None else accuracy(home, record.row, history.state)
        return cls(record.row, history, record.phase, record.runs, forecast_accuracy)

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def state(self) -> SweepState:
        return self.history.state

    @property
    def anchor(self) -> str:
        """The name of the section within the page."""
        return f"sweep-{self.id}"

    @property
    def project(self) -> str:
        return self.row.project

    @property
    def created(self) -> str:
        """The time at which the sweep was created, for people; empty: its clock is simulated."""
        if self.row.created < REAL_TIME:
            return ""
        return datetime.fromtimestamp(self.row.created, UTC).strftime("%Y-%m-%d %H:%M UTC")

    @property
    def search(self) -> str:
        return self.state.spec.search.name

    @property
    def scheduler(self) -> str:
        return self.state.spec.scheduler.name

    @property
    def metrics(self) -> Sequence[Metric]:
        return self.state.spec.objectives

    @property
    def metric(self) -> str:
        return self.metrics[0].name

    @property
    def goal(self) -> str:
        return f"{self.metrics[0].goal}d"

    @property
    def unit(self) -> str:
        return self.state.spec.fidelity.unit if self.state.spec.fidelity else ""

    @property
    def names(self) -> list[str]:
        """The parameters, in the order of the spec."""
        return list(self.state.spec.space)

    @property
    def total(self) -> int:
        return len(self.state.trials)

    @property
    def gpu_hours(self) -> float:
        return self.state.gpu_hours

    @property
    def elapsed_s(self) -> float:
        return self.state.worked_s

    @cached_property
    def front(self) -> list[Best]:
        """The best trial, or with several metrics the front."""
        return summary.front(self.id, self.state, self.runs)

    @property
    def best_trials(self) -> list[str]:
        return [best.trial for best in self.front]

    @property
    def best_text(self) -> str:
        """The best value and its trial; of a front, its size."""
        if self.state.spec.several:
            return f"{len(self.front)} trials on the front"
        if not self.front:
            return "none"
        best = self.front[0]
        of_seeds = seeds_text(self.state.trials[best.trial])
        return f"{self.metric} {number(values_of(best.value)[0])}{of_seeds} ({best.trial})"

    @property
    def nothing(self) -> str:
        """Why there is no best trial."""
        failed = len(summary.failures(self.state))
        if not self.total:
            return "No trial has begun."
        if failed == self.total:
            return f"All {failed} trials failed; hposvc logs {self.id} has what they wrote."
        within = " within the limits" if self.state.spec.limits else ""
        return f"No trial has a value{within}."

    @cached_property
    def findings(self) -> list[dict[str, str]]:
        """Sentences on what to believe of the result."""
        answers = why(self.id, self.state, self.history.explained())
        return [
            {"level": finding.level, "title": finding.title, "sentence": finding.sentence}
            for finding in answers
            if finding.topic not in SHOWN_ELSEWHERE
        ]

    @property
    def figures(self) -> list[ReportFigure]:
        """Figures of what the sweep did and cost."""
        counts = {name.lower(): count for name, count in self.state.trials.counts.items() if count}
        done = ", ".join(f"{count} {name}" for name, count in counts.items())
        cost = self.state.rank_s / 3600
        gpus = self.state.spec.resources.gpus_per_worker
        planned = "" if gpus == 0 else self._planned("gpu_hours", amount)
        cores = self.state.spec.resources.cpus_per_worker
        worked = "" if gpus else self._planned("cpu_hours", lambda value: amount(value / cores))
        price = "" if self.state.money is None else self.state.spec.price.text(self.state.money)
        notes = ", ".join(filter(None, (price, planned)))
        used = ReportFigure("GPU-hours", amount(self.gpu_hours), notes) if gpus else None
        steps = sum(trial.step for trial in self.state.trials.values())
        last = self.state.spec.last_step
        share = steps / (last * self.total) if last and self.total else None
        energy = summary.energy_used(self.state)
        saved = "" if share is None else f"{share:.0%} of training every trial to its end"
        return [
            ReportFigure("Trials", f"{self.total}", done),
            used
            or ReportFigure("Worker-hours", amount(cost), ", ".join(filter(None, (price, worked)))),
            ReportFigure("Time", duration(self.elapsed_s), self._planned("wall_s", duration)),
            *([ReportFigure("Energy", energy[0], ", ".join(energy[1:]))] if energy else []),
            ReportFigure(f"{self.unit or 'step'}s trained".capitalize(), f"{steps:,}", saved),
        ]

    def _planned(self, figure: str, show: Callable[[float], str]) -> str:
        """Return the forecast of a figure beside what it came to; empty: there was none."""
        planned = None if self.forecast is None else self.forecast.figures.get(figure)
        if planned is None:
            return ""
        made = planned.forecast
        within = "within" if planned.held else "outside"
        return f"forecast {show(made.value)}, {within} {show(made.low)} to {show(made.high)}"

    @cached_property
    def charts(self) -> list[Chart]:
        return charts(self.history)

    @property
    def drawn(self) -> list[dict[str, Any]]:
        """The charts with their pictures."""
        return [
            {
                "kind": chart.kind,
                "title": chart.title,
                "message": chart.message,
                "svg": Markup(draw_for_screens(chart)),
            }
            for chart in self.charts
        ]

    @cached_property
    def columns(self) -> list[Column]:
        """The table of all trials."""
        rows = summary.trials(self.state, self.runs)

        def of(key: str) -> list[Any]:
            return [getattr(row, key) for row in rows]

        metrics = self.metrics
        values = [values_of(row.value) or [None] * len(metrics) for row in rows]
        results = [
            Column(metric.name, [*column])
            for metric, column in zip(metrics, zip(*values, strict=True), strict=bool(rows))
        ]
        # Nothing for a parameter that the trial has not; null for one that is null.
        params = [
            [_cell(row.params[name]) if name in row.params else None for row in rows]
            for name in self.names
        ]
        seeds, used = of("seeds"), of("energy_kwh")
        causes = [row.detail or row.reason for row in rows]
        return [
            Column("trial", of("trial"), number=False),
            Column("state", [state.lower() for state in of("state")], number=False),
            *results,
            Column(self.unit or "step", of("step")),
            *(
                Column(name, column, all(_is_number(value) for value in column))
                for name, column in zip(self.names, params, strict=True)
            ),
            *([Column("GPU-hours", of("gpu_hours"))] if self.gpu_hours else []),
            *([Column("kWh", used)] if any(one is not None for one in used) else []),
            *([Column("seeds", seeds)] if any(count > 1 for count in seeds) else []),
            Column("seconds", of("duration_s")),
            Column("attempts", of("attempts")),
            Column("why it ended", causes, number=False, wrap=True),
        ]

    @property
    def top(self) -> list[int]:
        """The rows of the best trials."""
        return [trial.number for trial in self.state.ranked()[:STILL]]

    @property
    def trials(self) -> bool:
        return self.total > 0

    @property
    def packed_trials(self) -> Markup:
        columns = [{**asdict(column), "values": list(column.values)} for column in self.columns]
        up = self.metrics[0].goal == "minimize"
        order = None if self.state.spec.several else {"column": 2, "up": up}
        return packed({"columns": columns, "best": self.best_trials, "order": order})

    @property
    def commands(self) -> str:
        """The commands that train again."""
        again = "hposvc run spec.yaml"
        best = self.best_trials[:1] or list(self.state.trials)[:1]
        return "\n".join([again, *(f"hposvc repro {self.id} {trial}" for trial in best)])

    @property
    def origin(self) -> dict[str, str]:
        """Provenance: the code, its checksums, and the versions of hposvc."""
        code = self.row.code
        names = {"trainable": code.get("trainable"), "command": code.get("command")}
        ran = {
            name: " ".join(value) if isinstance(value, list | tuple) else f"{value}"
            for name, value in names.items()
            if value
        }
        sums = code.get("sha256", {})
        sums = {"code (SHA-256)": sums} if isinstance(sums, str) else dict(sums)
        return {
            **ran,
            **{name: f"{value}" for name, value in sums.items()},
            "seed": f"{self.state.spec.seed}",
            "scheduler": self.state.scheduler or self.scheduler,
            "written by": f"hposvc {version()}",
        }

    @property
    def yaml(self) -> str:
        """The spec, as a file for `hposvc run`."""
        return hide_passwords(to_yaml(self.row.spec))

    def json(self) -> dict[str, Any]:
        """Return the section for programs."""
        return {
            "sweep": self.id,
            "state": self.phase,
            "best": finite(self.front),
            "findings": self.findings,
            "figures": [asdict(figure) for figure in self.figures],
            "forecast": None if self.forecast is None else self.forecast.data(),
            "charts": [asdict(chart) for chart in self.charts],
        }


def html(sections: Sequence[Section]) -> str:
    """Return a report as one HTML file."""
    environment = Environment(
        loader=PackageLoader("hposvc.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "prose": prose,
        "number": number,
        "value": value_text,
        "duration": duration,
        "cell": cell,
    }
    title = ", ".join(section.id for section in sections)
    template = environment.get_template("report.html")
    comparison, refusal = compare(sections)
    picture = None if comparison is None else Markup(draw(comparison.chart))
    return template.render(
        sections=sections,
        title=title,
        version=version(),
        asset=asset,
        comparison=comparison,
        picture=picture,
        refusal=refusal,
    )


def compare(sections: Sequence[Section]) -> tuple[Compared | None, str]:
    """Return the comparison of a report's sweeps; or None, and why there is none."""
    if len(sections) < 2:
        return None, ""
    return side_by_side(
        [ComparedSweep(section.row, section.history, section.phase) for section in sections]
    )


def version() -> str:
    return metadata.version("hposvc")


def asset(name: str) -> Markup:
    """Return the text of a file in reporting/assets."""
    text = resources.files("hposvc.reporting").joinpath("assets", name).read_text("utf-8")
    return Markup(text)


def cell(value: Any) -> str:
    """Return a cell of the table of trials for people; empty for None."""
    return "" if value is None else number(value) if isinstance(value, float) else f"{value}"


def _cell(value: Any) -> Any:
    """Return a parameter's value as the table of trials shows and sorts it."""
    return value if _is_number(value) and value is not None else value_text(value)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
