"""The tools that read a spec. They import its code, so each call is a process of its own.

A server of agents lives for days, in which people edit their code; a module that it had imported
would stay as it was. `hposvc mcp-spec` is that process: arguments are JSON on stdin, and the last
line on stdout is the answer, after whatever the code prints.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import click

from hposvc import api
from hposvc import spec as specs
from hposvc.errors import NotFound, SpecError
from hposvc.events import NOTHING
from hposvc.mcp import detached
from hposvc.mcp.preview import Preview
from hposvc.open_sweep import OpenSweep, Record
from hposvc.remote.place import Place
from hposvc.remote.server import submission
from hposvc.remote.server.connection import ServedSweeps
from hposvc.spec import SweepSpec
from hposvc.state.doubts import repeated_points
from hposvc.text import finite
from hposvc.verbs import plan as planning
from hposvc.verbs.options import Shared, share
from hposvc.views.console import emit

VERB = "mcp-spec"
FIGURES = ("trials", "steps", "gpu_hours", "cpu_hours", "wall_s", "money", "currency")
MOST_SAVINGS = 3


class ToolRefused(Exception):
    """A tool's process ended with an error; the text is for the agent."""


async def call(place: Place, tool: str, arguments: Mapping[str, object]) -> Any:
    """Return the answer of a tool, from a process of its own.

    Raises:
        ToolRefused: it ended with an error.
    """
    url = place.http.name if isinstance(place, ServedSweeps) else ""
    shared = ("--home", f"{place.home.path}", "--server", url)
    command = [sys.executable, "-m", "hposvc", *shared, VERB, tool]
    done = await anyio.run_process(
        command, input=json.dumps(arguments, default=dict).encode(), check=False
    )
    if done.returncode:
        raise ToolRefused(done.stderr.decode(errors="replace").strip())
    return json.loads(done.stdout.splitlines()[-1])


@click.command(VERB, hidden=True)
@click.argument("tool")
@share
@click.pass_obj
def mcp_spec_command(shared: Shared, tool: str) -> None:
    """Answer a tool of `hposvc mcp`, which alone calls this."""
    answer = TOOLS[tool](shared.open_place(), **json.load(sys.stdin))
    emit(f"\n{json.dumps(finite(answer))}\n")


def validate(place: Place, spec: str, set: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
    """Check a spec, and return it without its defaults."""
    checked = _read(place, spec, set)
    doubts = [f"{problem}" for problem in repeated_points(checked)]
    return {"valid": True, "spec": specs.given(checked), "doubts": doubts}


def plan(
    place: Place, spec: str, set: Mapping[str, Any] = NOTHING, seconds_per_step: float | None = None
) -> dict[str, Any]:
    """Forecast a sweep, and return the figures with the token by which it can be submitted."""
    from hposvc.analysis.forecast.plan import Question  # takes seconds, which others need not wait

    checked = _read(place, spec, set)
    question = Question(seconds_per_step=seconds_per_step)
    answer = planning.plan(place, checked, question).data()
    found: dict[str, Any] = {name: _rounded(answer[name]) for name in FIGURES}
    found |= {name: answer[name] for name in ("source", "notes", "unknown")}
    found["savings"] = [_rounded(saving) for saving in answer["savings"][:MOST_SAVINGS]]
    found["budget"] = vars(checked.budget)
    try:
        preview = Preview.of(checked, place.home, _server(place))
        return {**found, "token": preview.token, "sweep": preview.sweep}
    except SpecError as error:
        return {**found, "refused": f"{error}"}


def submit(place: Place, spec: str, token: str, set: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
    """Run the sweep of a preview here or on the server; the one that runs, or ran, is left alone.

    Raises:
        SpecError: the spec has no budget, or the token is not that of its preview.
    """
    checked = _read(place, spec, set)
    preview = Preview.of(checked, place.home, _server(place))
    preview.check(token)
    record = _find(place, preview.sweep)
    if isinstance(place, ServedSweeps):
        if record is None:
            submission.submit(place, checked, preview.sweep)
    elif record is None or record.phase == "INTERRUPTED" or _waits(record):
        words = ["run", "-", "--id", preview.sweep, "--resume"]
        detached.start(place, preview.sweep, words, json.dumps(specs.dump(checked)))
    return {"sweep": preview.sweep, "state": OpenSweep(place, preview.sweep).record().phase}


TOOLS: Mapping[str, Callable[..., dict[str, Any]]] = {
    tool.__name__: tool for tool in (validate, plan, submit)
}


def _read(place: Place, spec: str, set: Mapping[str, object]) -> SweepSpec:
    """Read and check a spec; on a server, the operator's defaults may complete it."""
    check = specs.check_for_server if isinstance(place, ServedSweeps) else api.validate
    return check(Path(spec), set)


def _server(place: Place) -> str:
    return place.http.name if isinstance(place, ServedSweeps) else ""


def _find(place: Place, sweep: str) -> Record | None:
    """Return the sweep with this very id; None: there is none."""
    try:
        record = OpenSweep(place, sweep).record()
    except NotFound:
        return None
    return record if record.row.id == sweep else None


def _waits(record: Record) -> bool:
    """Return whether a sweep was recorded, and its driver was killed before it began."""
    return record.phase == "QUEUED" and record.driver != "alive"


def _rounded(data: Any) -> Any:
    """Return a forecast with four digits: its interval is far wider."""
    match data:
        case float():
            return float(f"{data:.4g}")
        case dict():
            return {name: _rounded(value) for name, value in data.items()}
    return data
