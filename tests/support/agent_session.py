"""An agent's side of `hposvc mcp`: the SDK's own client, over stdio."""

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import psutil
from mcp import Client, StdioServerParameters, types
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.stdio import stdio_client
from pydantic import ConfigDict, TypeAdapter
from real_server import environment
from waiting import PATIENCE_S

TASKS = "io.modelcontextprotocol/tasks"
# Trials report once the file GO exists: a server runs copies of the code, so it has a whole path.
CODE = """
import time
from pathlib import Path

def train(params, worker):
    print("a line on stdout")
    for step in worker.steps():
        while not Path(GO).exists():
            time.sleep(0.02)
        worker.report(step, {"loss": params["x"] + 1 / step})
"""
SPEC = {
    "name": "waits",
    "engine": "local",
    "trainable": "code.py:train",
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 3},
    "parameters": {"x": {"min": 0.0, "max": 6.0}},
    "trials": {"max": 2},
    "search": "random",
    "resources": {"workers": 1},
    "tracking": {"send_to": []},
}


def write_spec(folder: Path, **changes: object) -> Path:
    """Write the spec and its code into a folder, and return the spec's file."""
    folder.mkdir(parents=True, exist_ok=True)
    code = f"print('imported')\nGO = {f'{folder}/go'!r}\n{CODE}"
    (folder / "code.py").write_text(code)
    file = folder / "sweep.yaml"
    file.write_text(json.dumps({**SPEC, **changes}))
    return file


class TaskHandle(types.Result):
    """What `submit` returns to a client that knows tasks."""

    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"]
    task_id: str
    status: str


class KnowsTasks(ClientExtension):
    """A client that is told of tasks, and leaves the polling to the test."""

    identifier = TASKS

    def claims(self) -> Sequence[ResultClaim[Any]]:
        async def resolve(handle: TaskHandle, context: ClaimContext) -> types.CallToolResult:
            raise AssertionError("the test asks for the handle")

        return [ResultClaim(result_type="task", model=TaskHandle, resolve=resolve)]


class TaskParams(types.RequestParams):
    task_id: str


class TaskRequest(types.Request[TaskParams, str]):
    """`tasks/get` and its like."""


class Agent:
    """A connected client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Return what a tool returned as data, which is no error."""
        result = await self.client.call_tool(tool, arguments, PATIENCE_S)
        text = result.content[0].text
        assert not result.is_error, text
        return json.loads(text)

    async def refusal(self, tool: str, **arguments: Any) -> str:
        """Return the message with which a tool refuses."""
        result = await self.client.call_tool(tool, arguments, PATIENCE_S)
        assert result.is_error, result
        return result.content[0].text

    async def submit(self, spec: Path, **changes: Any) -> str:
        """Preview a sweep and submit it, and return its id."""
        given = {"spec": f"{spec}", "set": changes}
        preview = await self.call("plan", **given)
        return (await self.call("submit", **given, token=preview["token"]))["sweep"]

    async def submit_as_task(self, spec: Path, **changes: Any) -> str:
        """Preview a sweep and submit it, and return the id of its task."""
        given = {"spec": f"{spec}", "set": changes}
        given["token"] = (await self.call("plan", **given))["token"]
        session = self.client.session
        handle = await session.call_tool("submit", given, PATIENCE_S, allow_claimed=True)
        assert isinstance(handle, TaskHandle)
        assert handle.status == "working"
        return handle.task_id

    async def task(self, method: str, sweep: str) -> dict[str, Any]:
        """Return the answer to a request about a task."""
        request = TaskRequest(method=f"tasks/{method}", params=TaskParams(task_id=sweep))
        return await self.client.session.send_request(
            request, TypeAdapter(dict[str, Any]), PATIENCE_S
        )

    async def until(self, sweep: str, status: str) -> dict[str, Any]:
        """Return the task once it has this status."""
        with anyio.fail_after(PATIENCE_S):
            while (task := await self.task("get", sweep))["status"] != status:
                await anyio.sleep(0.1)
        return task


@asynccontextmanager
async def connected(
    home: Path,
    *words: str,
    mode: str = "auto",
    extensions: Sequence[ClientExtension] = (KnowsTasks(),),
    **variables: str,
) -> AsyncIterator[Agent]:
    """Start `hposvc mcp` and connect to it."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "hposvc", "mcp", *words],
        env=environment(home, **variables),
    )
    async with Client(stdio_client(server), mode=mode, extensions=extensions) as client:
        yield Agent(client)


def kill_servers() -> None:
    """Kill the MCP servers that this process has started, but not what they have started."""
    for child in psutil.Process().children():
        if "mcp" in child.cmdline():
            child.kill()
