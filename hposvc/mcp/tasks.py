"""Sweeps as tasks of MCP: the task's id is the sweep's id, and the journal answers for it.

The extension `io.modelcontextprotocol/tasks` of 2026-07-28 (SEP-2663): `submit` returns a task to
clients that know the extension, `tasks/get` has the result once the sweep is over, `tasks/cancel`
stops the sweep. Source: modelcontextprotocol/ext-tasks, specification/2026-07-28/tasks.md.
"""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from anyio import to_thread
from mcp import MCPError, types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding, RequestHandler
from mcp.server.mcpserver.server import require_client_extension

from hposvc.errors import FixableError, NotFound, SpecError
from hposvc.open_sweep import OpenSweep
from hposvc.text import finite
from hposvc.verbs.place import Place

TASKS = "io.modelcontextprotocol/tasks"
MODERN = frozenset({"2026-07-28"})
POLL_MS = 5000
STATUS = {"COMPLETED": "completed", "FAILED": "completed", "STOPPED": "cancelled"}
Context = ServerRequestContext[Any, Any]


class TaskParams(types.RequestParams):
    """The parameters of every request about a task."""

    task_id: str


class SweepTasks(Extension):
    """The tasks of a home or server."""

    identifier = TASKS

    def __init__(self, place: Place) -> None:
        self.place = place

    def methods(self) -> Sequence[MethodBinding]:
        """Return the requests about tasks; a sweep asks for no input, so `update` does nothing."""
        answers = {"get": self.get, "update": self.update, "cancel": self.cancel}
        return [
            MethodBinding(f"tasks/{name}", TaskParams, _handler(answer), MODERN)
            for name, answer in answers.items()
        ]

    async def intercept_tool_call(
        self, params: types.CallToolRequestParams, ctx: Context, call_next: CallNext
    ) -> HandlerResult:
        """Return a task in place of what `submit` returns, to a client that knows tasks."""
        result = await call_next(ctx)
        known = ctx.session.client_capabilities
        is_known = known is not None and TASKS in (known.extensions or {})
        match result:
            case types.CallToolResult(is_error=False, content=[types.TextContent(text=text)]) if (
                params.name == "submit" and is_known
            ):
                task = await to_thread.run_sync(self.get, json.loads(text)["sweep"])
                return {**task, "resultType": "task"}
        return result

    def get(self, sweep: str) -> dict[str, Any]:
        """Return a task; its result is the sweep's status, and an error if the sweep failed."""
        record = OpenSweep(self.place, sweep).record()
        state, status = record.state, STATUS.get(record.state.state, "working")
        over, created = sum(trial.over for trial in state.trials.values()), record.row.created
        task: dict[str, Any] = {
            "taskId": record.row.id,
            "status": status,
            "statusMessage": f"{record.phase}: {over} of {len(state.trials)} trials are over",
            "createdAt": datetime.fromtimestamp(created, UTC).isoformat(),
            "lastUpdatedAt": datetime.fromtimestamp(max(created, state.now), UTC).isoformat(),
            "ttlMs": None,
            "pollIntervalMs": POLL_MS,
        }
        if status == "completed":
            text = {"type": "text", "text": brief(record.status())}
            task["result"] = {"content": [text], "isError": state.state == "FAILED"}
        return task

    def update(self, sweep: str) -> dict[str, Any]:
        """Return the empty answer, if there is such a sweep."""
        self.place.find(sweep)
        return {}

    def cancel(self, sweep: str) -> dict[str, Any]:
        """Stop a sweep: its running trials end at their next reports."""
        self.place.steer(sweep, "stop")
        return {}


def _handler(answer: Callable[[str], dict[str, Any]]) -> RequestHandler:
    async def handle(context: Context, params: TaskParams) -> HandlerResult:
        require_client_extension(context, TASKS)
        try:
            return await to_thread.run_sync(answer, params.task_id)
        except (FixableError, SpecError) as error:
            code = types.INVALID_PARAMS if isinstance(error, NotFound) else types.INTERNAL_ERROR
            raise MCPError(code, f"{error}") from error

    return handle


def brief(data: object) -> str:
    """Return data as the JSON that agents read."""
    return json.dumps(finite(data), ensure_ascii=False)
