"""Take the pictures of the pages in docs/: list, sweep, trial, compare; light, dark, on a phone.

The report of the same sweep is opened from disk.

`make screenshots` runs it. The sweeps are simulated, in a home of their own.
"""

import json
import math
import os
import shutil
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any

import resvg_py
import uvicorn
from playwright.sync_api import sync_playwright

from hposvc import api
from hposvc.open_sweep import OpenSweep
from hposvc.reporting import writing
from hposvc.server.app import create_app
from hposvc.server.service import Service

FOLDER = Path(__file__).parent
LOOKS = {"light": (1280, 900), "dark": (1280, 900), "phone": (390, 844)}
PAGES = {
    "list": "/",
    "sweep": "/sweeps/digits-asha",
    "trial": "/sweeps/digits-asha/trials/t0007",
    "compare": "/compare?ids=digits-asha,digits-random",
}

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
    """Run simulated sweeps in a home."""
    sweeps = api.Sweeps.open(folder)
    for scheduler in ("fifo", "asha"):
        name = "digits-random" if scheduler == "fifo" else "digits-asha"
        data = {
            "name": name,
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
            "scheduler": scheduler,
            "trials": {"max": 60, "parallel": 4},
            "engine": {"type": "simulate", "curve": f"{Path(__file__)}:learn"},
            "tracking": {"send_to": []},
        }
        api.drive(sweeps, api.create(sweeps, api.validate(data, {}), name))
    log_files(sweeps, "digits-asha", "t0007")
    return sweeps


def log_files(sweeps: api.Sweeps, sweep: str, trial: str) -> None:
    """Put files where MLflow keeps what a trial's code logs."""
    sweeps.journal.record_runs(sweep, {trial: "run"})
    folder = sweeps.home.artifacts / "run" / "artifacts"
    folder.mkdir(parents=True)
    cells = "".join(
        f'<rect x="{16 * i}" y="{16 * j}" width="15" height="15" fill="#0072b2" '
        f'opacity="{0.95 if i == j else 0.04 + (i * 7 + j * 3) % 5 / 25}"/>'
        for i in range(10)
        for j in range(10)
    )
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 160 160">{cells}</svg>'
    (folder / "confusion.png").write_bytes(bytes(resvg_py.svg_to_bytes(svg, width=480)))
    hardest = [["4", "9", 17], ["3", "5", 11], ["7", "1", 8]]
    table = {"columns": ["digit", "taken for", "times"], "data": hardest}
    (folder / "hardest.json").write_text(json.dumps(table))
    (folder / "notes.txt").write_text("augmented: shifts of two pixels\nseed: 7\n")


def main() -> None:
    """Serve the sweeps, and take all pictures; they show no names of this machine."""
    os.environ["LOGNAME"] = "you"
    socket.gethostname = lambda: "laptop"
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as engine:
        sweeps = fill(Path(folder))
        (report,) = writing.report([OpenSweep(sweeps, "digits-asha")], Path(folder, "r.html"))
        app = create_app(Service(sweeps))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        threading.Thread(target=server.run, args=([listener],), daemon=True).start()
        browser = engine.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for look, (width, height) in LOOKS.items():
            scheme = "dark" if look == "dark" else "light"
            size = {"width": width, "height": height}
            page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
            for name, path in PAGES.items():
                page.goto(address + path, timeout=120_000)  # ms; the first look reads all events
                page.wait_for_function(COME, timeout=120_000)
                page.screenshot(path=FOLDER / f"page-{name}-{look}.png")
            page.goto(report.as_uri())
            page.wait_for_timeout(1000)
            page.screenshot(path=FOLDER / f"report-{look}.png")
        browser.close()
        server.should_exit = True


if __name__ == "__main__":
    main()
