"""Take the pictures of a sweep's page and of its report in docs/, in light and dark.

`make screenshots` runs it. The sweep is simulated, in a home of its own.
"""

import math
import os
import shutil
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any

import uvicorn
from playwright.sync_api import sync_playwright

from hposvc import api
from hposvc.open_sweep import OpenSweep
from hposvc.reporting import writing
from hposvc.server.app import create_app
from hposvc.server.service import Service

FOLDER = Path(__file__).parent
SIZE = {"width": 1280, "height": 900}
SWEEP = "digits-asha"

# Charts and findings come one by one; those within the window are waited for.
COME = """() => document.readyState === "complete" && ![
  ...document.querySelectorAll(".waiting, [hx-trigger=load]"),
].some((each) => each.getBoundingClientRect().top < innerHeight)"""


def learn(params: dict[str, Any], step: int) -> tuple[dict[str, float], float]:
    """Return the accuracy of a simulated network at a step, and the seconds that the step took."""
    miss = (math.log10(params["lr"]) + 2.3) ** 2 / 4 + (params["dropout"] - 0.2) ** 2
    miss += 0.4 * (params["optimizer"] == "sgd") * (1 - params.get("momentum", 0.9))
    speed = params["batch"] / 128
    return {"val/accuracy": 0.985 - 0.1 * miss - 0.5 * speed / (step + speed)}, 40.0 / speed


def fill(folder: Path) -> api.Sweeps:
    """Run the sweep in a home."""
    sweeps = api.Sweeps.open(folder)
    data = {
        "name": SWEEP,
        "project": "demo",
        "metric": {"name": "val/accuracy", "goal": "maximize"},
        "fidelity": {"unit": "epoch", "max": 27},
        "parameters": {
            "lr": {"min": 1e-4, "max": 1e-1, "log": True},
            "batch": {"values": [64, 128, 256], "ordered": True},
            "dropout": {"min": 0.0, "max": 0.6},
            "optimizer": {"values": ["adamw", "sgd"]},
            "momentum": {"min": 0.5, "max": 0.99, "when": {"optimizer": "sgd"}},
        },
        "search": "random",
        "scheduler": "asha",
        "trials": {"max": 60, "parallel": 4},
        "engine": {"type": "simulate", "curve": f"{Path(__file__)}:learn"},
        "tracking": {"send_to": []},
    }
    api.drive(sweeps, api.create(sweeps, api.validate(data, {}), SWEEP))
    return sweeps


def main() -> None:
    """Serve the sweep, and take all pictures; they show no names of this machine."""
    os.environ["LOGNAME"] = "you"
    socket.gethostname = lambda: "laptop"
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as engine:
        sweeps = fill(Path(folder))
        (report,) = writing.report([OpenSweep(sweeps, SWEEP)], Path(folder, "r.html"))
        app = create_app(Service(sweeps))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        threading.Thread(target=server.run, args=([listener],), daemon=True).start()
        browser = engine.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for look in ("light", "dark"):
            page = browser.new_context(viewport=SIZE, color_scheme=look).new_page()
            page.goto(f"{address}/sweeps/{SWEEP}", timeout=120_000)  # ms; it reads all events
            page.wait_for_function(COME, timeout=120_000)
            page.screenshot(path=FOLDER / f"page-sweep-{look}.png")
            page.goto(report.as_uri())
            page.wait_for_timeout(1000)
            page.screenshot(path=FOLDER / f"report-{look}.png")
        browser.close()
        server.should_exit = True


if __name__ == "__main__":
    main()
