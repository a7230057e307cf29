"""The page that shows sweeps side by side."""

from contextlib import ExitStack
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from hposvc.journal.journal import SweepRow
from hposvc.reporting.charts import draw
from hposvc.reporting.comparison import side_by_side
from hposvc.reporting.comparison_checks import ComparedSweep
from hposvc.server.access import Caller, Principal
from hposvc.server.pages import pictures
from hposvc.server.pages.rendering import page
from hposvc.server.routes.sweeps import best_trials
from hposvc.server.service import Service, Serving
from hposvc.spec import SweepSpec, dump, flat
from hposvc.text import cost_text

router = APIRouter()

MOST = 6  # sweeps
FOLDER = "folder"  # key of a spec: where it was read
CURVES = {"trials": "trials", "cost": "cost"}


@router.get("/compare")
def compare(
    request: Request,
    service: Serving,
    caller: Caller,
    ids: Annotated[list[str] | None, Query(max_length=20)] = None,
) -> Response:
    """Return a page with sweeps side by side; `ids` may be repeated, or have commas."""
    names = [name.strip() for part in ids or () for name in part.split(",") if name.strip()]
    rows = _rows(service, caller, names)
    columns: list[dict[str, Any]] = []
    for row in rows:
        with service.folded.open(row) as folded:
            record = folded.record(best_trials)
            columns.append(
                {
                    "id": row.id,
                    "status": record.status(),
                    "best": record.front()[:1],
                    "spec": _spec(record.state.spec),
                }
            )
    with ExitStack() as held:
        # In one order everywhere, so that two requests do not wait for each other.
        ordered = sorted(rows, key=lambda row: row.id)
        opened = {row.id: held.enter_context(service.histories.open(row)) for row in ordered}
        histories = {row.id: opened[row.id].history for row in rows}
        pictures_of = {
            words: pictures.side_by_side(histories, against) for against, words in CURVES.items()
        }
        for column in columns:
            history = histories[column["id"]]
            column["cost"] = cost_text(history.cost(history.rank_s), history.cost_unit)
        phases = {column["id"]: column["status"].state for column in columns}
        entries = [ComparedSweep(row, histories[row.id], phases[row.id]) for row in rows]
        comparison, refusal = side_by_side(entries) if len(entries) > 1 else (None, "")
        if comparison is not None:  # it has one line for each sweep, with intervals for groups
            pictures_of = {"cost": draw(comparison.chart), "trials": pictures_of["trials"]}
    bests = [column["best"][0].params if column["best"] else {} for column in columns]
    return page(
        request,
        "compare.html",
        columns=columns,
        ids=names,
        most=MOST,
        comparison=comparison,
        refusal=refusal,
        dropped=max(0, len(set(names)) - len(rows)),
        pictures=pictures_of,
        params=_differences(bests),
        spec=_differences([column["spec"] for column in columns]),
    )


def _rows(service: Service, caller: Principal, names: list[str]) -> list[SweepRow]:
    """Return the sweeps with these ids, each once.

    Raises:
        NotFound: there is no such sweep that the caller may see.
    """
    rows = [service.find(caller, name) for name in names[: 2 * MOST]]
    return [row for row in {row.id: row for row in rows}.values() if service.sees(caller, row)][
        :MOST
    ]


def _spec(spec: SweepSpec) -> dict[str, Any]:
    """Return the values of a spec by their dotted keys, without what is empty."""
    values = flat(dump(spec))
    return {key: value for key, value in values.items() if value is not None and key != FOLDER}


def _differences(columns: list[dict[str, Any]]) -> list[tuple[str, list[Any], list[bool]]]:
    """Return the keys whose values differ, with the values, and whether each column has one."""
    names = dict.fromkeys(name for column in columns for name in column)
    return [
        (name, [column.get(name) for column in columns], [name in column for column in columns])
        for name in names
        if len({repr(column.get(name, ...)) for column in columns}) > 1
    ]
