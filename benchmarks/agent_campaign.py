"""Agents' campaigns over MCP whose servers are killed between a call and its answer.

`python benchmarks/agent_campaign.py` prints Markdown. A script takes the place of the agent: it is
the official SDK's client on stdio, and calls what an agent calls. It has a scikit-learn model tuned
on scanned digits, and then begins a second, endless sweep, which it cancels. At random moments
SIGKILL ends `hposvc mcp`, and with `--server` also `hposvc serve`, while a call is under way. The
script starts them again and sends the call again. At the end the journal and MLflow are held
against what was asked for.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
import psutil
from agents_exchange import free_port
from mcp import Client, MCPError, StdioServerParameters, types
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.stdio import stdio_client
from mlflow import MlflowClient
from pydantic import ConfigDict, TypeAdapter
from tables import heading, spread, table

from hposvc.api import Sweeps
from hposvc.verbs.events import events

ROOT = Path(__file__).parent.parent
TASKS = "io.modelcontextprotocol/tasks"
TRIALS, EPOCHS = 6, 5
LIMIT_S = 300.0  # for an answer, and for what a sweep should come to
WAIT_S = 5.0  # for which a call of `events` waits
OFTEN = 0.35  # of the calls are struck, until a campaign has had its kills
USUAL_S = 3.0  # a call of a tool that was not answered yet
CODE = """
import time

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split


def train(params, worker):
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x / 16, y, random_state=0)
    model = SGDClassifier("log_loss", alpha=params["alpha"], learning_rate="constant",
                          eta0=params["lr"], random_state=0)
    for epoch in worker.steps():
        model.partial_fit(x_train, y_train, classes=range(10))
        time.sleep(0.3)
        worker.report(epoch, {"accuracy": model.score(x_test, y_test)})
"""
SPEC = {
    "name": "digits",
    "engine": "local",
    "trainable": "train.py:train",
    "metric": {"name": "accuracy", "goal": "maximize"},
    "fidelity": {"max": EPOCHS, "unit": "epoch"},
    "parameters": {
        "lr": {"min": 1e-4, "max": 1.0, "log": True},
        "alpha": {"min": 1e-7, "max": 1e-1, "log": True},
    },
    "search": "random",
    "trials": {"max": TRIALS},
    "resources": {"workers": 1},
    "budget": {"wall": "30m"},
}
ENDLESS = {"seed": 1, "fidelity.max": 10**6}
Answer = TypeVar("Answer")


class TaskHandle(types.Result):
    """What `submit` returns to a client that knows tasks."""

    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"]
    task_id: str


class KnowsTasks(ClientExtension):
    """A client that asks for tasks itself."""

    identifier = TASKS

    def claims(self) -> Sequence[ResultClaim[Any]]:
        async def resolve(handle: TaskHandle, context: ClaimContext) -> types.CallToolResult:
            raise AssertionError("the script asks for the handle")

        return [ResultClaim(result_type="task", model=TaskHandle, resolve=resolve)]


class TaskParams(types.RequestParams):
    task_id: str


class TaskRequest(types.Request[TaskParams, str]):
    """`tasks/get` and `tasks/cancel`."""


@dataclass
class Tally:
    """What became of a campaign, or of several."""

    campaigns: int = 0
    kills: int = 0
    calls: int = 0
    again: int = 0
    asked: int = 0
    sweeps: int = 0
    lost: int = 0  # trials of the first sweep that did not end, or are not in MLflow
    twice: int = 0  # trials that ended twice, reported an epoch twice, or have two runs
    gaps: int = 0  # events of the first sweep that the script did not see, or saw twice
    left: int = 0  # processes that were still there
    first_answer_s: list[float] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Add another campaign's."""
        for name in (each.name for each in fields(self)):
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Services:
    """The servers of a campaign: `hposvc mcp`, and maybe `hposvc serve`."""

    def __init__(self, folder: Path, is_served: bool) -> None:
        self.home = folder / "home"
        self._mine = folder / "mine" if is_served else self.home
        self._port = free_port() if is_served else 0
        self._server: subprocess.Popen[str] | None = None

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Client]:
        """Start what does not run, and connect to `hposvc mcp`."""
        words = ["mcp"]
        if self._port:
            self._serve()
            words += ["--server", f"http://127.0.0.1:{self._port}"]
        command = ["-P", "-m", "hposvc", *words]
        parameters = StdioServerParameters(
            command=sys.executable, args=command, env=environment(self._mine)
        )
        async with Client(stdio_client(parameters), extensions=[KnowsTasks()]) as client:
            yield client

    def _serve(self) -> None:
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-P", "-m", "hposvc", "serve", "--port", f"{self._port}"],
                stderr=subprocess.PIPE,
                env=environment(self.home),
                text=True,
            )
            assert self._server.stderr is not None
            line = self._server.stderr.readline()
            assert " on http://127.0.0.1:" in line, line

    def kill(self) -> None:
        """Kill the servers, but not what they have started."""
        for child in psutil.Process().children():
            with suppress(psutil.Error):
                if "mcp" in child.cmdline():
                    child.kill()
        if self._server is not None:
            self._server.kill()
            self._server.communicate()
            self._server = None

    def processes(self) -> list[psutil.Process]:
        """Return the processes of the campaign's homes, but the servers."""
        homes = {f"{self.home}", f"{self._mine}"}
        mine = {os.getpid(), *(child.pid for child in psutil.Process().children())}
        found = []
        for process in psutil.process_iter(["pid", "environ"]):
            variables = process.info["environ"] or {}
            if variables.get("HPOSVC_HOME") in homes and process.info["pid"] not in mine:
                found.append(process)
        return found


class Agent:
    """The script's side: it sends each call until the call has an answer."""

    def __init__(self, services: Services, rng: random.Random, kills: int, tally: Tally) -> None:
        self._services, self._rng, self.kills, self._tally = services, rng, kills, tally
        self._usual_s: dict[str, float] = {}
        self._open = AsyncExitStack()
        self._client: Client | None = None
        self.task = ""  # which the script asks about after each kill

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Return what a tool returned, as data."""

        async def ask(client: Client) -> Any:
            result = await client.call_tool(tool, arguments, LIMIT_S)
            (content,) = result.content
            assert isinstance(content, types.TextContent)
            assert not result.is_error, content.text
            return json.loads(content.text)

        return await self._ask(tool, ask)

    async def submit(self, **arguments: Any) -> str:
        """Return the id of the task that `submit` returned."""

        async def ask(client: Client) -> str:
            session = client.session
            handle = await session.call_tool("submit", arguments, LIMIT_S, allow_claimed=True)
            assert isinstance(handle, TaskHandle), handle
            return handle.task_id

        return await self._ask("submit", ask)

    async def ask_task(self, method: str, task: str) -> dict[str, Any]:
        """Return the answer to a request about a task."""
        return await self._ask(method, lambda client: send(client, method, task))

    async def close(self) -> None:
        """End the connection."""
        self._client = None
        with suppress(Exception):
            await self._open.aclose()

    async def _ask(self, name: str, ask: Callable[[Client], Awaitable[Answer]]) -> Answer:
        self._tally.calls += 1
        while True:
            try:
                client = self._client or await self._connect()
                return await self._strike(name, client, ask)
            except MCPError as error:
                if "Connection closed" not in f"{error}":
                    raise
                await self.close()
                self._tally.again += 1

    async def _connect(self) -> Client:
        began = time.perf_counter()
        self._client = await self._open.enter_async_context(self._services.connected())
        if self.task:
            task = await send(self._client, "get", self.task)
            assert task["taskId"] == self.task
        else:
            await self._client.list_tools()
        if self._tally.kills:
            self._tally.first_answer_s.append(time.perf_counter() - began)
        return self._client

    async def _strike(
        self, name: str, client: Client, ask: Callable[[Client], Awaitable[Answer]]
    ) -> Answer:
        """Ask, and maybe kill the servers before the answer has come."""
        began, usual_s = time.perf_counter(), self._usual_s.get(name, USUAL_S)
        async with anyio.create_task_group() as group:
            if self.kills and self._rng.random() < OFTEN:
                group.start_soon(self._kill_after, self._rng.uniform(0, usual_s))
            try:
                answer = await ask(client)
            except MCPError as error:
                failure = error
            else:
                self._usual_s[name] = time.perf_counter() - began
                group.cancel_scope.cancel()
                return answer
        raise failure

    async def _kill_after(self, delay_s: float) -> None:
        await anyio.sleep(delay_s)
        self.kills -= 1
        self._tally.kills += 1
        self._services.kill()


async def send(client: Client, method: str, task: str) -> dict[str, Any]:
    """Return the answer to a request about a task."""
    request = TaskRequest(method=f"tasks/{method}", params=TaskParams(task_id=task))
    return await client.session.send_request(request, TypeAdapter(dict[str, Any]), LIMIT_S)


def environment(home: Path) -> dict[str, str]:
    """Return the variables of a process of this repository's hposvc."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HPOSVC_")}
    return {**kept, "HPOSVC_HOME": f"{home}", "PYTHONPATH": f"{ROOT}"}


async def go(agent: Agent, spec: Path, tally: Tally) -> tuple[str, str, list[int]]:
    """Run the campaign; return both sweeps, and the numbers of the first one's events as seen."""
    assert (await agent.call("validate", spec=f"{spec}"))["valid"]
    given = {"spec": f"{spec}"}
    preview = await agent.call("plan", **given)
    sweep = await agent.submit(**given, token=preview["token"])
    agent.task, tally.asked = sweep, 2
    assert sweep == preview["sweep"]
    since, seen, is_over = 0, list[int](), False
    while not is_over:
        query = {"since": since, "wait_s": WAIT_S, "top": 100, "routine": True}
        news = await agent.call("events", sweep=sweep, **query)
        assert news["sweep"] == sweep
        since, is_over = news["next"], news["over"]
        seen += [int(line.split()[0]) for line in news["events"]]
    task = await agent.ask_task("get", sweep)
    assert task["status"] == "completed", task
    assert (await agent.call("status", sweep=sweep))["state"] == "COMPLETED"
    assert len((await agent.call("trials", sweep=sweep, top=100))["trials"]) == TRIALS
    assert (await agent.call("why", sweep=sweep))["findings"]
    given["set"] = ENDLESS
    endless = await agent.submit(**given, token=(await agent.call("plan", **given))["token"])
    agent.task = endless
    await agent.ask_task("cancel", endless)
    while (await agent.ask_task("get", endless))["status"] != "cancelled" or agent.kills:
        await anyio.sleep(0.2)
    await agent.close()
    return sweep, endless, seen


def check(home: Path, sweep: str, endless: str, seen: list[int], tally: Tally) -> None:
    """Hold the journal and MLflow against what was asked for."""
    sweeps = Sweeps.open(home)
    made = [row.id for row in sweeps.journal.sweeps()]
    tally.sweeps += len(made)
    assert {*made} == {sweep, endless}, made
    recorded = events(sweeps, sweep)["events"]
    ended = Counter(each["data"]["trial"] for each in recorded if each["kind"] == "ended")
    reports = Counter(
        (each["data"]["trial"], each["data"]["step"])
        for each in recorded
        if each["kind"] == "reported"
    )
    runs = Counter(runs_of(sweeps, sweep))
    tally.lost += (TRIALS - len(ended)) + (TRIALS * EPOCHS - len(reports)) + (TRIALS - len(runs))
    tally.twice += sum(count - 1 for counts in (ended, reports, runs) for count in counts.values())
    numbers = Counter(seen)
    numbers.subtract(each["seq"] for each in recorded)
    tally.gaps += sum(map(abs, numbers.values()))


def runs_of(sweeps: Sweeps, sweep: str) -> Iterator[str]:
    """Yield the trial of each of a sweep's runs in MLflow."""
    client = MlflowClient(sweeps.home.tracking_uri)
    experiments = [each.experiment_id for each in client.search_experiments()]
    for run in client.search_runs(experiments, f"tags.`hposvc.sweep` = '{sweep}'"):
        if trial := run.data.tags.get("hposvc.trial"):
            yield trial


@contextmanager
def ending(services: Services, tally: Tally) -> Iterator[None]:
    """Count the processes that are left a minute after a campaign, and kill them."""
    try:
        yield
        deadline = time.monotonic() + 60
        while services.processes() and time.monotonic() < deadline:
            time.sleep(0.5)
    finally:
        services.kill()
        for process in services.processes():
            tally.left += 1
            with suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)


def campaign(seed: int, kills: int, is_served: bool) -> Tally:
    """Run a campaign, and return what became of it."""
    tally = Tally(campaigns=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "code").mkdir()
        (folder / "code" / "train.py").write_text(CODE)
        spec = folder / "code" / "sweep.yaml"
        spec.write_text(json.dumps(SPEC))
        services = Services(folder, is_served)
        with ending(services, tally):
            agent = Agent(services, random.Random(seed), kills, tally)
            found = anyio.run(go, agent, spec, tally)
            check(services.home, *found, tally)
    print(f"seed {seed}: {tally}", file=sys.stderr, flush=True)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaigns", type=int, default=10)
    parser.add_argument("--kills", type=int, default=6, help="in each campaign")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--server", action="store_true", help="sweeps on a server, killed too")
    parser.add_argument("--quick", action="store_true", help="one campaign with two kills")
    arguments = parser.parse_args()
    print(heading(("mcp", "mlflow", "scikit-learn")))
    campaigns, kills = (1, 2) if arguments.quick else (arguments.campaigns, arguments.kills)
    total = Tally()
    for seed in range(arguments.seed, arguments.seed + campaigns):
        total.add(campaign(seed, kills, arguments.server))
    rows = {
        "campaigns": f"{total.campaigns}",
        "kills": f"{total.kills}",
        "calls; sent again": f"{total.calls}; {total.again}",
        "sweeps made, of those asked for": f"{total.sweeps} of {total.asked}",
        "trials lost": f"{total.lost}",
        "trials twice": f"{total.twice}",
        "events that the agent missed or saw twice": f"{total.gaps}",
        "processes left": f"{total.left}",
        "s from a restart to the first answer": spread(total.first_answer_s, 1),
    }
    print(table(["what", "figure"], [*map(list, rows.items())]))


if __name__ == "__main__":
    main()
