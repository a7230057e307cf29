"""Sweeps as tasks of MCP: the task's id is the sweep's id, and the journal answers for it.

The extension `io.modelcontextprotocol/tasks` of 2026-07-28 (SEP-2663): `submit` returns a task to
clients that know the extension, `tasks/get` has the result once the sweep is over, `tasks/cancel`
stops the sweep. Source: modelcontextprotocol/ext-tasks, specification/2026-07-28/tasks.md.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from anyio import to_thread
from mcp import MCPError, types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver.server import require_client_extension

from hposvc.errors import FixableError, NotFound, SpecError
from hposvc.mcp.sweep_tools import describe
from hposvc.open_sweep import OpenSweep
from hposvc.remote.place import Place
from hposvc.text import finite
from hposvc.verbs import steering

TASKS = "io.modelcontextprotocol/tasks"
POLL_MS = 5000
MODERN = frozenset({"2026-07-28"})
Context = ServerRequestContext[Any, Any]


class TaskParams(types.RequestParams):
    """The parameters of all requests about a task; those of `tasks/update` are ignored."""

    task_id: str


class SweepTasks(Extension):
    """The tasks of a home or server."""

    identifier = TASKS

    def __init__(self, place: Place) -> None:
        self.place = place

    def methods(self) -> Sequence[MethodBinding]:
        """Return the requests about tasks; a sweep never asks for input, so `update` is `get`."""
        handlers = {"get": get, "update": acknowledge, "cancel": cancel}
        return [
            MethodBinding(f"tasks/{name}", TaskParams, self._answer_by(handler), MODERN)
            for name, handler in handlers.items()
        ]

    def _answer_by(
        self, handler: Callable[[Place, str], dict[str, Any]]
    ) -> Callable[[Context, TaskParams], Awaitable[HandlerResult]]:
        async def answer(context: Context, params: TaskParams) -> HandlerResult:
            require_client_extension(context, TASKS)
            try:
                return await to_thread.run_sync(partial(handler, self.place, params.task_id))
            except NotFound as error:
                raise MCPError(types.INVALID_PARAMS, f"{error}") from error
            except (FixableError, SpecError) as error:
                raise MCPError(types.INTERNAL_ERROR, f"{error}") from error

        return answer

    async def intercept_tool_call(
        self, params: types.CallToolRequestParams, ctx: Context, call_next: CallNext
    ) -> HandlerResult:
        """Return a task in place of what `submit` returns, to a client that knows tasks."""
        result = await call_next(ctx)
        capabilities = ctx.session.client_capabilities
        is_known = capabilities is not None and TASKS in (capabilities.extensions or {})
        if not is_known or not isinstance(result, types.CallToolResult) or result.is_error:
            return result
        if params.name != "submit" or not isinstance(result.content[0], types.TextContent):
            return result
        sweep = json.loads(result.content[0].text)["sweep"]
        task = await to_thread.run_sync(partial(get, self.place, sweep))
        task.pop("result", None)
        return {**task, "resultType": "task"}


def get(place: Place, sweep: str) -> dict[str, Any]:
    """Return a task as `tasks/get` does; its result is the sweep's status, an error if it failed.

    Raises:
        NotFound: there is no such sweep.
    """
    record = OpenSweep(place, sweep).record()
    state, counts = record.state, record.state.trials.counts
    over = sum(counts.get(phase, 0) for phase in ("COMPLETED", "STOPPED", "FAILED"))
    words = {"COMPLETED": "completed", "FAILED": "completed", "STOPPED": "cancelled"}
    task: dict[str, Any] = {
        "taskId": record.row.id,
        "status": words.get(state.state, "working"),
        "statusMessage": f"{record.phase}: {over} of {len(state.trials)} trials are over",
        "createdAt": _iso(record.row.created),
        "lastUpdatedAt": _iso(max(record.row.created, state.now)),
        "ttlMs": None,  # the journal keeps it
        "pollIntervalMs": POLL_MS,
    }
    if task["status"] == "completed":
        text = types.TextContent(text=json.dumps(finite(describe(record))))
        result = types.CallToolResult(content=[text], is_error=state.state == "FAILED")
        task["result"] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return task


def acknowledge(place: Place, sweep: str) -> dict[str, Any]:
    """Return the empty answer, if there is such a sweep."""
    place.find(sweep)
    return {}


def cancel(place: Place, sweep: str) -> dict[str, Any]:
    """Stop a sweep: its running trials end at their next reports."""
    steering.steer(place, sweep, "stop")
    return {}


def _iso(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat()
