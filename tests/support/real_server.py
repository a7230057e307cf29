"""A real server, with its drivers, as processes of their own."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from inspect import getsource
from pathlib import Path
from typing import Any

import psutil
import toys
from waiting import until

from hposvc.server.child_drivers import VERB

PATIENCE_S = 120.0
OURS = ("HPOSVC_DB", "HPOSVC_DB_FILE", "HPOSVC_CONFIG", "HPOSVC_TOKEN", "HPOSVC_SERVER")
SPEC = {
    "name": "anywhere",
    "trainable": "code.py:train",
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 27},
    "parameters": {"lr": {"min": 0.001, "max": 0.5, "log": True}},
    "search": "random",
    "scheduler": {"type": "asha", "eta": 3},
    "trials": {"max": 9},
    "engine": {"type": "agents", "lease": "20s"},
    "tracking": {"send_to": []},
}
CODE = (
    f"import time\n\n\n{getsource(toys.ddp)}"
    + """

def train(params, worker):
    before = worker.restore()
    x = float((before / "x").read_text()) if before else 5.0
    for step in worker.steps():
        x -= min(params["lr"], 0.9) * x
        time.sleep(0.3)
        folder = worker.scratch()
        (folder / "x").write_text(str(x))
        worker.report(step, {"loss": x * x}, checkpoint=folder)
"""
)


def environment(home: Path, **variables: str) -> dict[str, str]:
    """Return the environment of this repository's hposvc, with this home."""
    root = f"{Path(__file__).parents[2]}"
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    return {**kept, "HPOSVC_HOME": f"{home}", "PYTHONPATH": root, **variables}


class Served:
    """A server, which can be killed and started again at the same URL."""

    def __init__(self, home: Path, port: int = 0) -> None:
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "hposvc", "serve", "--port", f"{port}"],
            stderr=subprocess.PIPE,
            env=environment(home),
            text=True,
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert " on http://127.0.0.1:" in line, line
        self.url = line.split(" on ")[1].split(";")[0].strip()

    def kill(self) -> "int":
        """Kill the server, and return its port."""
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return int(self.url.rpartition(":")[2])

    def submit(self, spec: Mapping[str, Any], sweep: str) -> None:
        """Submit a sweep whose trainable is one of `CODE`, and wait until it is driven."""
        body = {"spec": dict(spec), "files": {"code.py": CODE}, "id": sweep}
        self._request("sweeps", json.dumps(body).encode())
        until(lambda: self.get(f"sweeps/{sweep}")["state"] == "RUNNING")

    def get(self, path: str) -> Any:
        """Return the JSON at a path of the API."""
        return self._request(path, None)

    def trials(self, sweep: str) -> list[dict[str, Any]]:
        """Return the rows of a sweep's trials."""
        rows: list[dict[str, Any]] = self.get(f"sweeps/{sweep}/trials")["trials"]
        return rows

    def _request(self, path: str, body: bytes | None) -> Any:
        request = urllib.request.Request(f"{self.url}/api/v1/{path}", body)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())


@contextmanager
def serving(home: Path) -> Iterator[Served]:
    """Serve a home; end the server and its drivers when the block is left."""
    with ending_drivers(home):
        server = Served(home)
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def ending_drivers(home: Path) -> Iterator[None]:
    """Kill the drivers of a home's sweeps, which outlive servers, when the block is left."""
    try:
        yield
    finally:
        for process in psutil.process_iter(["cmdline", "environ"]):
            variables = process.info["environ"] or {}
            if (
                VERB in (process.info["cmdline"] or ())
                and variables.get("HPOSVC_HOME") == f"{home}"
            ):
                with suppress(psutil.NoSuchProcess):
                    for one in (*process.children(recursive=True), process):
                        one.kill()
                    process.wait(PATIENCE_S)
