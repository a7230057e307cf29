"""`trials`: list the trials of a sweep; hposvc/analysis/selection.py selects them."""

import math
from collections.abc import Collection, Sequence

import click
from rich.table import Table
from rich.text import Text

from hposvc.analysis.selection import chosen, to_csv
from hposvc.spec import SweepSpec
from hposvc.state.answers import Trial
from hposvc.state.finalists import FinalistResult
from hposvc.text import NONE, duration
from hposvc.verbs.options import Shared, sweep_id, verb
from hposvc.views.console import emit, make_table, note, show
from hposvc.views.dashboard import Configuration, baseline_mark, phase_text
from hposvc.views.formatting import micro_batch_share, scalar
from hposvc.views.result import values, varied


@verb
@sweep_id
@click.option("--top", type=click.IntRange(1), metavar="N", help="List only the N best.")
@click.option("--sort", metavar="NAME", help="Sort by a column or parameter; -NAME: largest first.")
@click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="List only trials like state=FAILED or 'lr>0.01'.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with all parameters.")
def trials_command(
    shared: Shared,
    sweep: str,
    top: int | None,
    sort: str | None,
    where: tuple[str, ...],
    as_csv: bool,
) -> None:
    """List the trials of a sweep."""
    record = shared.open_sweep(sweep).record()
    rows, spec = chosen(record, where, sort, top), record.state.spec
    if as_csv:
        emit(to_csv(rows, spec))
    elif not shared.json(rows):
        cut_off = list[bool]()
        show(table(rows, spec, record.state.front, cut_off))
        if cut_off:
            command = shared.command(f"trials {sweep} --csv")
            note(f"some parameters have no room here; all: {command}")


def table(
    listed: Sequence[Trial],
    spec: SweepSpec,
    front: Collection[str],
    cut: list[bool] | None = None,
) -> Table:
    """Return the table of `trials`, one row per trial, with the best ones highlighted.

    Args:
        cut: gets an item when the table is drawn and some parameters do not fit.
    """
    copies = ["copied"] if any(trial.parent for trial in listed) else []
    repeated = ["repeats"] if any(trial.repeat_of for trial in listed) else []
    smaller = ["micro-batch"] if any(trial.shrink for trial in listed) else []
    again = ["attempts"] if any(trial.attempts > 1 for trial in listed) else []
    taken = ["result of"] if any(trial.memo for trial in listed) else []
    seeded = ["±", "seeds"] if any(trial.seeds > 1 for trial in listed) else []
    columns = (
        "trial",
        *copies,
        *repeated,
        *taken,
        "state",
        spec.unit,
        *(metric.name for metric in spec.objectives),
        *seeded,
    )
    unlike = ["device"] if len({trial.device for trial in listed} - {None}) > 1 else []
    priced = ["money"] if any(trial.money is not None for trial in listed) else []
    reasons = ["reason"] if any(_reason(trial) for trial in listed) else []
    optional = (*priced, *unlike, *again, *smaller, *reasons)
    made = make_table(*columns, "time", *optional, "configuration")
    for column in made.columns[:-1]:
        column.no_wrap = True  # only the configuration leaves out what does not fit
    names = varied(spec, listed)
    for trial in listed:
        style = "bold green" if trial.trial in front else ""
        params = trial.params
        pairs = [(name, scalar(params[name])) for name in names if name in params]
        made.add_row(
            Text.assemble((trial.trial, style), baseline_mark(trial.baseline)),
            *(trial.parent or NONE for _ in copies),
            *(trial.repeat_of or NONE for _ in repeated),
            *(trial.memo or NONE for _ in taken),
            phase_text(trial.state),
            str(trial.step),
            *(Text(text, style) for text in values(trial.value, spec)),
            *(_seeds(trial) if seeded else ()),
            duration(trial.duration_s),
            *(NONE if trial.money is None else spec.price.text(trial.money) for _ in priced),
            *(trial.device or NONE for _ in unlike),
            *(str(trial.attempts) for _ in again),
            *(micro_batch_share(trial.shrink) or NONE for _ in smaller),
            *(_reason(trial) or NONE for _ in reasons),
            Configuration(pairs, "=", " ", [] if cut is None else cut),
        )
    return made


def _seeds(trial: Trial) -> tuple[str, str]:
    """Return half the interval of a mean over seeds, and how many there are."""
    values = [value for value in trial.seed_values if isinstance(value, float | int)]
    half = FinalistResult(trial.trial, tuple(values)).estimate.half if len(values) > 1 else math.nan
    return NONE if math.isnan(half) else f"{half:.2g}", str(trial.seeds)


def _reason(trial: Trial) -> str:
    beyond_limit = "beyond a limit" if trial.kept is False else ""
    detail = trial.detail if trial.reason in ("diverged", "excluded") else ""
    reason = ": ".join(filter(None, (trial.reason, detail)))
    return ", ".join(filter(None, (reason, beyond_limit)))
