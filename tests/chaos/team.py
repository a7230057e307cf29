"""A team on one server: clients that submit and steer sweeps, while what they need is killed.

The server, Postgres, MLflow and the nodes of a Ray cluster are processes of their own. Clients
speak HTTP alone, and remember what the server promised them; whether it was kept is checked from
outside, in the journal and in MLflow.
"""

import http.client
import json
import random
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psutil
import services
from aftermath import Ledger
from ruamel.yaml import YAML
from terminal import Command, Terminal, kill_node, pause, until

from hposvc import api
from hposvc.journal.home import Home
from hposvc.tracking.reconcile import Reconciler

TRIALS, STEPS = 3, 3
MORE = 2  # trials that an `extend` adds
PROJECTS = ("red", "blue")
AGAIN_S = 0.5  # between two tries of a client whose server does not answer
END_S = 3600.0  # for all sweeps of a long form to end
OVER = ("COMPLETED", "STOPPED", "FAILED")
CODE = """
import time


def train(params, worker):
    before = worker.restore()
    assert before is None or (before / "at").exists()
    for step in worker.steps():
        time.sleep(0.2)
        folder = worker.scratch()
        (folder / "at").write_text(str(step))
        worker.report(step, {"loss": (params["lr"] - 0.01) ** 2 / step}, checkpoint=folder)
"""


class Refused(Exception):
    """The server answered, and said no."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status


@dataclass
class Promise:
    """What the server accepted of a client about one sweep."""

    sweep: str
    project: str
    trials: int = TRIALS
    stopped: bool = False  # a stop or kill of the sweep was accepted
    answers: int = 0  # that were 2xx
    seen: str = ""  # the state last seen


@dataclass
class Team:
    """The server, what it stands on, and what its clients were promised."""

    terminal: Terminal
    rng: random.Random
    variables: dict[str, str]
    arguments: Sequence[str]
    postgres: services.Postgres
    mlflow: services.Tracking
    nodes: list[int]
    port: int = field(default_factory=services.free_port)
    server: Command | None = None
    tokens: dict[str, str] = field(default_factory=dict)  # of each project's members
    promises: dict[str, Promise] = field(default_factory=dict)
    kills: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)  # what a client saw that must not be

    @property
    def home(self) -> Home:
        return Home.of(self.terminal.home, self.variables)

    def serve(self) -> None:
        """Start the server; returns when it answers."""
        self.server = self.start("serve", "--port", f"{self.port}", *self.arguments)
        until(self.answers, "the server answers")

    def start(self, *arguments: str) -> Command:
        with_variables = f"import os, sys; os.environ.update({self.variables!r}); "
        code = with_variables + "from hposvc.cli.main import main; main(sys.argv[1:])"
        return self.terminal.start_python("-c", code, *arguments)

    def answers(self) -> bool:
        assert self.server is not None
        assert self.server.process.poll() is None, self.server.stderr.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5):
                return True
        except OSError:
            return False

    def ask(self, project: str, method: str, path: str, body: object = None) -> Any:
        """Ask as a member of a project, until the server answers.

        Raises:
            Refused: the answer is a 4xx.
        """
        deadline = time.monotonic() + END_S
        while True:
            request = urllib.request.Request(
                f"http://127.0.0.1:{self.port}/api/v1{path}",
                None if body is None else json.dumps(body).encode(),
                {
                    "Authorization": f"Bearer {self.tokens[project]}",
                    "Content-Type": "application/json",
                },
                method=method,
            )
            try:
                with urllib.request.urlopen(request, timeout=30) as response:
                    return json.loads(response.read())
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code != 429:
                    raise Refused(error.code, error.read()) from None
            except (
                OSError,
                ValueError,
                http.client.HTTPException,
            ):  # it was killed, also amid an answer
                pass
            assert time.monotonic() < deadline, f"no answer to {method} {path}"
            time.sleep(AGAIN_S)

    # What clients do

    def work(self, client: int, sweeps: int) -> None:
        """Submit sweeps, steer them at random, and wait for their ends."""
        rng = random.Random(self.rng.random() + client)
        project = PROJECTS[client % len(PROJECTS)]
        names = [f"team-{client}-{number}" for number in range(sweeps)]
        for name in names:
            self.submit(project, name)
        for name in names:
            self.steer(rng, self.promises[name])
        for name in names:
            self.look_across(project)
            self.await_end(self.promises[name])

    def submit(self, project: str, name: str) -> None:
        spec = {
            "name": "team",
            "project": project,
            "trainable": "toy.py:train",
            "parameters": {"lr": {"min": 1e-4, "max": 1e-1, "log": True}},
            "metric": {"name": "loss", "goal": "minimize"},
            "fidelity": {"max": STEPS},
            "search": "random",
            "trials": {"max": TRIALS, "parallel": 1},
            "resources": {"cpus_per_worker": 0.25},
            "failure": {"infra_retries": 50},
            "storage": str(self.terminal.home / "storage"),
        }
        body = {"spec": spec, "id": name, "files": {"toy.py": CODE}}
        answer = self.ask(project, "POST", "/sweeps", body)
        assert answer["sweep"] == name, answer
        self.promises[name] = Promise(name, project, answers=1)

    def steer(self, rng: random.Random, promise: Promise) -> None:
        """Do something to a sweep, or nothing."""
        path = f"/sweeps/{promise.sweep}"
        match rng.choice(["nothing", "extend", "pause", "stop", "kill", "stop trial"]):
            case "extend":
                before = promise.trials
                self.ask(
                    promise.project,
                    "POST",
                    f"{path}/extend",
                    {"set": {"trials.max": TRIALS + MORE}},
                )
                promise.trials = before + MORE
            case "pause":
                self.ask(promise.project, "POST", f"{path}/pause")
                self.ask(promise.project, "POST", f"{path}/resume")
            case "stop" | "kill" as verb:
                self.ask(promise.project, "POST", f"{path}/{verb}")
                promise.stopped = True
            case "stop trial":
                with suppress(Refused):  # there is no such trial yet
                    self.ask(promise.project, "POST", f"{path}/trials/t0001/stop")
        promise.answers += 1

    def look_across(self, project: str) -> None:
        """See that nobody sees what is another project's."""
        rows = self.ask(project, "GET", "/sweeps?limit=200")["sweeps"]
        foreign = [row["sweep"] for row in rows if row["project"] != project]
        self.wrong += [f"{project} is shown {sweep}" for sweep in foreign]
        others = [other for other in list(self.promises.values()) if other.project != project]
        for other in others[:2]:
            for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/kill")):
                try:
                    self.ask(project, method, f"/sweeps/{other.sweep}{path}")
                    self.wrong.append(f"{project} may {method} {path or 'see'} {other.sweep}")
                except Refused as refused:
                    if refused.status not in (403, 404):
                        self.wrong.append(f"{project}, {other.sweep}{path}: {refused}")

    def await_end(self, promise: Promise) -> None:
        deadline = time.monotonic() + END_S
        while promise.seen not in OVER:
            assert time.monotonic() < deadline, f"{promise} has not ended"
            answer = self.ask(promise.project, "GET", f"/sweeps/{promise.sweep}")
            promise.seen = answer["state"]
            if promise.seen == "PAUSED":  # the pause came behind the resume
                self.ask(promise.project, "POST", f"/sweeps/{promise.sweep}/resume")
            time.sleep(AGAIN_S)

    # What is killed

    def kill_driver(self) -> bool:
        drivers = [process for process in self.terminal.processes() if _drives(process)]
        if not drivers:
            return False
        with suppress(psutil.NoSuchProcess):
            self.rng.choice(drivers).kill()
        return True

    def kill_node(self) -> bool:
        """SIGKILL of a worker node; the others have room for all."""
        if len(self.nodes) < 2:
            return False
        kill_node(self.nodes.pop())
        return True

    def kill_postgres(self) -> None:
        self.postgres.down()
        pause(self.rng.uniform(0.5, 5.0))
        self.postgres.up()

    def kill_mlflow(self) -> None:
        self.mlflow.down()
        pause(self.rng.uniform(0.5, 5.0))
        self.mlflow.up()

    def strike(self, rounds: int, busy: Callable[[], bool]) -> None:
        """Kill each kind of thing in turn, in a random order, while sweeps run."""
        kinds = ["server", "driver", "node", "postgres", "mlflow"]
        for _ in range(rounds):
            for kind in self.rng.sample(kinds, len(kinds)):
                pause(self.rng.uniform(1.0, 5.0))
                if not busy():
                    return
                if getattr(self, f"kill_{kind}")() is not False:
                    self.kills.append(kind)

    def play(self, clients: int, sweeps: int, rounds: int) -> None:
        """Let so many clients work on so many sweeps each, and kill meanwhile."""
        with ThreadPoolExecutor(clients) as pool:
            jobs = [pool.submit(self.work, client, sweeps) for client in range(clients)]
            until(lambda: self.promises, "a first sweep is accepted")
            self.strike(rounds, lambda: not all(job.done() for job in jobs))
            for job in jobs:
                job.result(END_S)

    # What came of it

    def broken(self) -> Iterator[str]:
        """Yield whatever promise was not kept."""
        yield from self.wrong
        sweeps = api.Sweeps(self.home, self.home.journal())
        recorded = {row.id for row in sweeps.journal.sweeps()}
        yield from (f"{name} was accepted and is lost" for name in {*self.promises} - recorded)
        yield from (f"{name} was never asked for" for name in recorded - {*self.promises})
        for promise in self.promises.values():
            yield from (f"{promise.sweep}: {fault}" for fault in self.faults(sweeps, promise))

    def faults(self, sweeps: api.Sweeps, promise: Promise) -> Iterator[str]:
        """Yield what is wrong with one sweep."""
        until(
            lambda: api.load(sweeps, promise.sweep).driver == "none",
            f"the driver of {promise.sweep} lets go",
        )
        record = api.load(sweeps, promise.sweep)
        wanted = "STOPPED" if promise.stopped else "COMPLETED"
        state = record.state
        # A stop that came behind the end changes nothing.
        if state.state != wanted and not (promise.stopped and state.state == "COMPLETED"):
            yield f"it is {state.state} ({state.reason}), not {wanted}"
        ledger = Ledger()
        for number, event in sweeps.journal.read(promise.sweep):
            try:
                ledger.read(event)
            except AssertionError as error:
                yield f"event {number} ({event.kind}): {error}"
        if not promise.stopped and len(state.trials) != promise.trials:
            yield f"{len(state.trials)} trials, not {promise.trials}"
        if ledger.out:
            yield f"orders are out: {sorted(ledger.out)}"
        if record.behind:
            yield f"{record.behind} events did not reach MLflow"
        comparison = Reconciler(sweeps.home, sweeps.journal, record.row).compare()
        for difference in comparison.differences:
            yield f"MLflow: {difference}"


def _drives(process: psutil.Process) -> bool:
    """Whether this process holds a sweep's lease."""
    with suppress(psutil.Error):
        words = process.cmdline()
        return "hposvc" in words and "supervised" in words
    return False


@contextmanager
def gathered(terminal: Terminal, seed: int) -> Iterator[Team]:
    """Start everything, and end it."""
    with ExitStack() as stack:
        mlflow = stack.enter_context(services.tracking(terminal.home))
        postgres = stack.enter_context(services.postgres())
        up = terminal.ask("cluster", "up", "--local", "2", "--cpus", "1")
        stack.callback(lambda: terminal.start("cluster", "down").end())
        config = terminal.home / "server.yaml"
        members = {
            project: {"members": {project: ["submit", "steer", "read"]}} for project in PROJECTS
        }
        YAML().dump({"projects": members, "loopback": "token"}, config)
        variables = {
            **up["environment"],
            "HPOSVC_DB": postgres.url,
            "MLFLOW_TRACKING_URI": mlflow.uri,
            "HPOSVC_CONFIG": str(config),
        }
        nodes = [node["pid"] for node in up["started_nodes"][1:]]
        team = Team(
            terminal,
            random.Random(seed),
            variables,
            ("--cluster", up["dashboard"]),
            postgres,
            mlflow,
            nodes,
        )
        for project in PROJECTS:
            command = team.start(
                *("token", "create", "--owner", project, "-o", "json"),
                *("--scope", "submit", "--scope", "steer", "--scope", "read"),
            )
            code, said = command.end()
            assert code == 0, said
            team.tokens[project] = json.loads(command.stdout.read_text())["token"]
        team.serve()
        stack.callback(lambda: team.server.process.send_signal(signal.SIGTERM))
        yield team
