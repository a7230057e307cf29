"""`export`: hand a sweep on as tables, a study, its best schedule as a spec, its best model."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from hposvc.analysis import lineage
from hposvc.analysis.lineage import Schedule, replays_exactly
from hposvc.open_sweep import OpenSweep
from hposvc.reporting import tables
from hposvc.reporting.model_card import hand_on
from hposvc.spec import registry
from hposvc.spec.parsing.document import to_yaml
from hposvc.state.summary import trial_values
from hposvc.verbs.options import Shared, sweep_id, verb
from hposvc.views.console import emit, note


@verb
@sweep_id
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "json", "parquet", "optuna"]),
    help="Write this format; by default what --out ends with, or CSV. A study of Optuna goes to "
    "FILE.db or FILE.log.",
)
@click.option("--curves", is_flag=True, help="Write all reports in place of the trials.")
@click.option("--schedule", is_flag=True, help="Write the best trial's values over time as a spec.")
@click.option(
    "--model",
    metavar="FOLDER|URL",
    help="Write the best checkpoint with a card into this folder, or into a store (s3://...).",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write to this file; by default to stdout."
)
def export_command(
    shared: Shared,
    sweep: str,
    form: str | None,
    curves: bool,
    schedule: bool,
    model: str | None,
    out: Path | None,
) -> None:
    """Write a sweep's trials, reports, best schedule or best model for other tools."""
    if schedule and (form or curves):
        raise click.UsageError("--schedule writes a spec; leave out --format and --curves")
    if model and (form or curves or schedule or out):
        raise click.UsageError("--model writes a checkpoint; leave out the other options")
    if out is None and form == "parquet" and sys.stdout.isatty():
        raise click.UsageError("Parquet is no text; give --out FILE.parquet")
    written = "" if schedule or model else _format(shared, form, out)
    if written == "optuna" and out is None:
        raise click.UsageError("a study is no text; give --out FILE.db or FILE.log")
    if written == "optuna" and curves:
        raise click.UsageError("a study has the trials and their reports; leave out --curves")
    opened = shared.open_sweep(sweep)
    if model:
        names = hand_on(opened, model)
        if not shared.json({"folder": model, "files": names}):
            emit("".join(f"{model.rstrip('/')}/{name}\n" for name in names))
        return
    if written == "optuna" and out is not None:
        # By name: whatever knows Optuna is an integration, above the verbs.
        registry.resolve("hposvc.integrations.optuna.study:export")(opened, out)
        note(f"{out} is written")
        return
    data = _schedule(shared, opened) if schedule else _table(opened, written, curves)
    if out is None:
        emit(data if form == "parquet" else data.decode())
    else:
        out.write_bytes(data)
        note(f"{out} is written")


def _format(shared: Shared, form: str | None, out: Path | None) -> str:
    """Return the format that was asked for in some way."""
    if form is None and shared.output == "json":
        return "json"
    return form or ("csv" if out is None else tables.format_of(out))


def _schedule(shared: Shared, sweep: OpenSweep) -> bytes:
    """Return the best trial's schedule as a spec: YAML, or JSON if that was asked for."""
    best = lineage.best_schedule(sweep)
    if shared.output == "json":
        return f"{json.dumps(best.spec, indent=2)}\n".encode()
    return schedule_yaml(best).encode()


def _table(sweep: OpenSweep, form: str, curves: bool) -> bytes:
    """Return the trials, or all reports, in a format."""
    frame = tables.curves_table(sweep) if curves else tables.trials_table(sweep)
    return tables.written(frame, form)


def schedule_yaml(schedule: Schedule) -> str:
    """Return the YAML of the spec that replays a lineage, headed by comments that describe it."""
    head = "".join(f"# {comment}\n" for comment in _describe_lineage(schedule))
    return head + to_yaml(schedule.spec)


def _describe_lineage(schedule: Schedule) -> Iterator[str]:

    state, line = schedule.state, schedule.segments
    unit = state.spec.fidelity.unit if state.spec.fidelity else ""
    best = state.trials[line[-1].trial]
    yield f"The schedule of {best.id}, the best trial of {schedule.sweep}: {trial_values(best)}."
    yield "Train it again:  hposvc run FILE"
    steps_done = 0
    for segment in line:
        steps = f"{unit} {steps_done + 1} to {steps_done + segment.steps}".strip()
        yield f"  {steps}: {segment.trial}'s {segment.first} to {segment.last}"
        steps_done += segment.steps
    if not replays_exactly([*line]):
        yield "Trials copied others that stood at another step: what follows the whole length of a"
        yield "trial, such as a learning rate's schedule, is not the same here."
