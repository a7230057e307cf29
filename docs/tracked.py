"""Take the picture of MLflow in docs/: a sweep's runs.

`make screenshots` runs it: a real sweep of some seconds in this process, then `mlflow server` on
loopback, in a home of its own.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from hposvc import api
from hposvc.tracking import runs_page
from hposvc.tracking.projection import EXPERIMENT
from trainables.worker import Worker

PICTURE = Path(__file__).with_name("mlflow.png")
SIZE = {"width": 1280, "height": 760}
START_S = 120.0
SPEC = {
    "name": "digits-mlp",
    "project": "digits",
    "description": "Which small network reads scikit-learn's 1,797 digits best?",
    "trainable": f"{Path(__file__)}:train",
    "metric": {"name": "val/accuracy", "goal": "maximize"},
    "fidelity": {"unit": "epoch", "max": 9},
    "parameters": {
        "lr": {"min": 1e-4, "max": 1e-1, "log": True},
        "width": {"values": [16, 32, 64], "ordered": True},
        "activation": {"values": ["relu", "tanh"]},
    },
    "search": "random",
    "scheduler": "asha",
    "trials": {"max": 16},
    "engine": "local",
}


def train(params: dict[str, object], worker: Worker) -> None:
    """Train a small network on digits, an epoch at a time."""
    images, digits = load_digits(return_X_y=True)
    network = MLPClassifier(
        (params["width"],),
        activation=params["activation"],
        learning_rate_init=params["lr"],
        random_state=0,
    )
    for step in worker.steps():
        network.partial_fit(images[:1300] / 16, digits[:1300], classes=range(10))
        folder = worker.scratch()
        (folder / "weights.json").write_text(json.dumps([w.tolist() for w in network.coefs_]))
        accuracy = network.score(images[1300:] / 16, digits[1300:])
        worker.report(step, {"val/accuracy": accuracy}, checkpoint=folder)


@contextmanager
def serving(database: Path) -> Iterator[str]:
    """Run MLflow's server on a database, and give its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = f"{Path(sys.executable).with_name('mlflow')}"
    server = subprocess.Popen(
        [
            *(program, "server", "--backend-store-uri", f"sqlite:///{database}"),
            *("--host", "127.0.0.1", "--port", f"{port}", "--workers", "1"),
        ],
        # What evaluates language models in the background is not needed here.
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_S
        while True:
            try:
                urllib.request.urlopen(f"{address}/health", timeout=1)
                break
            except OSError:
                assert time.monotonic() < deadline, "mlflow server does not answer"
                time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """Run the sweep, and take the picture; it shows no names of this machine."""
    os.environ["LOGNAME"] = "you"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as engine:
        sweeps = api.Sweeps.open(Path(folder))
        row = api.create(sweeps, api.validate(SPEC, {}), "digits-mlp")
        api.drive(sweeps, row)
        runs = sweeps.journal.runs(row.id)
        with serving(sweeps.home.path / "mlflow.db") as address:
            browser = engine.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = browser.new_context(viewport=SIZE).new_page()
            page.set_default_timeout(1000 * START_S)
            closed = "localStorage['mlflow.assistant.panelOpen_v1'] = 'false'"
            opened = "localStorage['mlflow.assistant.fab.autoOpenedOnFirstLoad_v1'] = 'true'"
            page.add_init_script(f"try {{ {closed}; {opened} }} catch {{}}")
            page.goto(runs_page.address(address, runs[EXPERIMENT], row.id))
            page.locator("text=best ·").first.wait_for()
            page.wait_for_timeout(4000)  # ms: the table grows into its place
            page.screenshot(path=PICTURE)
            browser.close()


if __name__ == "__main__":
    main()
