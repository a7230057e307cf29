"""The tools that read a spec; each call has a process of its own, which imports the code anew.

A token is a keyed hash of the frozen spec and its code, so it is stored nowhere. The key is a file
of this home, which only its user can read: whoever has not called `plan` has no token.
"""

import hmac
import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from cluster.tokens import make_token
from hposvc import api
from hposvc import spec as specs
from hposvc.errors import NotFound, SpecError, fail
from hposvc.journal.home import Home
from hposvc.mcp import detached
from hposvc.open_sweep import OpenSweep
from hposvc.remote import cluster_server
from hposvc.remote.place import Place
from hposvc.remote.server import submission
from hposvc.remote.server.connection import ServedSweeps
from hposvc.spec import SweepSpec, fingerprint, registry
from hposvc.state.doubts import repeated_points
from hposvc.verbs import plan as planning

NO_BUDGET = "give budget.wall (like 2h), budget.gpu_hours, budget.cpu_hours or budget.cost"
QUESTION = "hposvc.analysis.forecast.plan:Question"
Answer = dict[str, Any]
LEFT_OUT = ("rungs", "checkpoint", "memory", "simulated")  # of a plan's data


def apart(place: Place, tool: Callable[..., Answer], *arguments: object) -> Answer:
    """Return a tool's answer, from a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        where = (place.home.path, _server(place))
        return pool.submit(_answer, tool, *where, arguments).result()


def _answer(
    tool: Callable[..., Answer], home: Path, url: str, arguments: Iterable[object]
) -> Answer:
    return tool(cluster_server.at(url, home=home) if url else api.Sweeps.open(home), *arguments)


def _server(place: Place) -> str:
    return place.http.name if isinstance(place, ServedSweeps) else ""


def validate(place: Place, spec: str, set: Mapping[str, Any]) -> Answer:
    """Check a spec, and return it without its defaults."""
    checked = _read(place, spec, set)
    doubts = [f"{problem}" for problem in repeated_points(checked)]
    return {"valid": True, "spec": specs.given(checked), "doubts": doubts}


def plan(
    place: Place, spec: str, set: Mapping[str, Any], seconds_per_step: float | None = None
) -> Answer:
    """Forecast a sweep, and return the figures with the token by which it can be submitted."""
    checked = _read(place, spec, set)
    # By name: loading torch takes seconds, which other tools need not wait.
    question = registry.resolve(QUESTION)(seconds_per_step=seconds_per_step)
    data = planning.plan(place, checked, question).data()
    figures = {name: value for name, value in data.items() if name not in LEFT_OUT}
    figures |= {"savings": data["savings"][:3], "budget": vars(checked.budget)}
    try:
        sweep, token = preview(checked, place.home, _server(place))
    except SpecError as error:
        return {**figures, "refused": f"{error}"}
    return {**figures, "sweep": sweep, "token": token}


def submit(place: Place, spec: str, set: Mapping[str, Any], token: str) -> Answer:
    """Run the sweep of a preview here or on the server; one that runs, rests or is over stays so.

    Raises:
        SpecError: the spec has no budget, or the token is not that of its preview.
    """
    checked = _read(place, spec, set)
    sweep, right = preview(checked, place.home, _server(place))
    if token != right:
        message = "does not fit this spec, `set` and code: one of them has changed, or there was"
        raise fail(f"{message} no preview", "token", fix="call `plan` with them, and look at it")
    try:
        record = OpenSweep(place, sweep).record()
        is_driven = record.driver == "alive" or record.phase not in ("QUEUED", "INTERRUPTED")
    except NotFound:
        record, is_driven = None, False
    if isinstance(place, ServedSweeps):
        if record is None:
            submission.submit(place, checked, sweep)
    elif not is_driven:
        words = ["run", "-", "--id", sweep, "--resume"]
        detached.start(place, sweep, words, json.dumps(specs.dump(checked)))
    return {"sweep": sweep, "state": OpenSweep(place, sweep).record().phase}


def _read(place: Place, spec: str, set: Mapping[str, Any]) -> SweepSpec:
    """Read and check a spec; on a server, the operator's defaults may complete it."""
    check = specs.check_for_server if isinstance(place, ServedSweeps) else api.validate
    return check(Path(spec), set)


def preview(spec: SweepSpec, home: Home, server: str) -> tuple[str, str]:
    """Return the id of a spec's sweep on a server (empty: in this home), and its token.

    Raises:
        SpecError: the spec has no budget, or a file of its code does not exist.
    """
    if not spec.budget.limited:
        raise fail("is missing: an agent's sweep needs a limit", "budget", fix=NO_BUDGET)
    frozen = json.dumps([specs.dump(spec), fingerprint.describe(spec), server], sort_keys=True)
    digest = hmac.digest(_key(home), frozen.encode(), "sha256").hex()
    return f"{spec.name}-{digest[:10]}", digest[10:42]


def _key(home: Home) -> bytes:
    """Return this home's key; the first call makes it."""
    file = home.path / "mcp.key"
    make_token(file)
    return file.read_bytes()
