"""The tools of `hposvc mcp` as agents see them: what they are for, and what they need."""

import inspect
import json
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial, wraps
from importlib.metadata import version
from typing import Any

from anyio import to_thread
from mcp import types
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from hposvc.errors import FixableError, SpecError
from hposvc.mcp import spec_tools, sweep_tools
from hposvc.mcp.tasks import SweepTasks
from hposvc.remote.place import Place
from hposvc.remote.server.connection import ServedSweeps
from hposvc.text import finite

INSTRUCTIONS = (
    "hposvc runs hyperparameter sweeps. Order: validate, plan (cost, token), submit, then wait by "
    "events; why says what came out. `sweep` is an id, the beginning of one, or `last`. "
    "`set` replaces values of a spec by dotted keys, like trials.max."
)
EMPTY: tuple[object, ...] = (None, "", {})
# What tools do, as agents are told: whether they destroy anything, whether a repetition does more.
HINTS = {
    "read": types.ToolAnnotations(read_only_hint=True, idempotent_hint=True),
    "submit": types.ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=True
    ),
    "steer": types.ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=False
    ),
}


@dataclass(frozen=True)
class AgentTool:
    """A function that takes a place and then what an agent gives."""

    function: Callable[..., Any]
    description: str
    scope: str = "read"  # that a server's token needs, beside `read`


TOOLS = (
    AgentTool(
        spec_tools.validate,
        "Check a spec without running it. spec: path of a YAML file. "
        "Returns the spec as it was understood, without defaults.",
    ),
    AgentTool(
        spec_tools.plan,
        "Preview a sweep: forecasts of trials, hours, money and wall time, each with an 80% "
        "interval, what is unknown, what would save most, and the token that submit needs. Runs "
        "nothing. seconds_per_step: if no earlier sweep of this code shows it.",
    ),
    AgentTool(
        spec_tools.submit,
        "Run the sweep that plan showed: same spec and set, and its token. The spec needs a "
        "budget. Sent again, it returns the same sweep. The sweep goes on without you.",
        "submit",
    ),
    AgentTool(
        sweep_tools.status,
        "A sweep's state, counts of trials, best trial, cost so far, and what it waits for.",
    ),
    AgentTool(
        sweep_tools.trials,
        "The best trials of a sweep with parameters and values. where: conditions like "
        "state=FAILED or lr>0.01. sort: a column or parameter, -name for largest first.",
    ),
    AgentTool(
        sweep_tools.why,
        "What a sweep found, in ten sentences: the best, how sure that is, the gain, the cost, "
        "what mattered, warnings, what to try next. Read it before you conclude anything.",
    ),
    AgentTool(
        sweep_tools.compare,
        "Which of several sweeps, or groups of them (by: keys of the spec, like search.method), "
        "is better at equal cost, and with which probability. The first is the reference.",
    ),
    AgentTool(
        sweep_tools.steer,
        "pause, resume, stop (running trials end at their next report), kill (at once) or extend "
        "a sweep. trial: stop or kill only this one. extend: trials adds as many, set gives new "
        "limits like budget.wall. stop and kill can't be undone.",
        "steer",
    ),
    AgentTool(
        sweep_tools.events,
        "What happened after event number `since`, at most top lines; with wait_s, wait up to "
        "that long for the next. Ask again with since=next until over. routine: with every "
        "report, checkpoint and order.",
    ),
)


def build(place: Place) -> MCPServer[Any]:
    """Return the server of a home's sweeps, or of a server's, with the tools that its token may."""
    server = MCPServer[Any](
        "hposvc",
        version=version("hposvc"),
        instructions=INSTRUCTIONS,
        extensions=[SweepTasks(place)],
        log_level="WARNING",
    )
    granted = _scopes(place)
    for tool in TOOLS:
        if granted is None or {"read", tool.scope} <= {*granted}:
            server.add_tool(
                _bound(place, tool.function),
                description=tool.description,
                annotations=HINTS[tool.scope],
                structured_output=False,
            )
    return server


def _scopes(place: Place) -> Collection[str] | None:
    """Return what the server's token may do; None: anything, or the server does not say so now."""
    if not isinstance(place, ServedSweeps):
        return None
    try:
        scopes: list[str] = place.http.get("me")["scopes"]
    except (FixableError, SpecError):  # each call gets the server's message
        return None
    return scopes


def _bound(place: Place, function: Callable[..., Any]) -> Callable[..., Awaitable[str]]:
    """Return a tool's function for a place: it returns JSON, and our errors are the agent's."""
    name = function.__name__

    @wraps(function)
    async def answer(**arguments: Any) -> str:
        try:
            if name in spec_tools.TOOLS:
                data = await spec_tools.call(place, name, arguments)
            elif inspect.iscoroutinefunction(function):
                data = await function(place, **arguments)
            else:
                data = await to_thread.run_sync(partial(function, place, **arguments))
        except (FixableError, SpecError, spec_tools.ToolRefused) as error:
            raise ToolError(f"{error}") from error
        return json.dumps(_dense(finite(data)), ensure_ascii=False)

    _, *others = inspect.signature(function).parameters.values()
    answer.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
    answer.__annotations__ = {other.name: other.annotation for other in others}
    return answer


def _dense(data: Any) -> Any:
    """Return JSON data without the values that say nothing."""
    match data:
        case dict():
            dense = {name: _dense(value) for name, value in data.items()}
            return {name: value for name, value in dense.items() if value not in EMPTY}
        case list() | tuple():
            return [_dense(item) for item in data]
    return data
