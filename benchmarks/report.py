"""What a report costs: seconds to write, bytes, and seconds until Chromium can use it.

`python benchmarks/report.py` prints Markdown. The sweeps are simulated: 27 steps at most, ASHA, and
four parameters, one of them conditional.
"""

import argparse
import math
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from tables import heading, table

from hposvc import api
from hposvc import spec as specs
from hposvc.open_sweep import OpenSweep
from hposvc.reporting import writing
from hposvc.reporting.document import Section

TRIALS = (1000, 10_000)
LIMITS_MB = {1000: 3.0, 10_000: 10.0}
CHROMIUM = "/usr/bin/chromium"
PARAMETERS = {
    "lr": {"min": 1e-5, "max": 1e-1, "log": True},
    "width": {"values": [32, 64, 128]},
    "optimizer": {"values": ["sgd", "adam"]},
    "momentum": {"min": 0.5, "max": 0.99, "when": {"optimizer": "sgd"}},
}


def curve(params: Any, step: int) -> tuple[dict[str, float], float]:
    """Return a loss that falls with the steps, and the seconds of a step."""
    loss = (math.log10(params["lr"]) + 3) ** 2 / 4 + 16 / params["width"] + 1 / step
    return {"loss": loss}, 1.0 + params["width"] / 64


def record(home: Path, trials: int) -> OpenSweep:
    """Return a simulated sweep of so many trials."""
    sweeps = api.Sweeps.open(home)
    spec = specs.load(
        {
            "metric": {"name": "loss", "goal": "minimize"},
            "fidelity": {"min": 1, "max": 27},
            "parameters": PARAMETERS,
            "trials": {"max": trials, "parallel": 8},
            "search": "random",
            "scheduler": "asha",
            "engine": {"type": "simulate", "curve": "report:curve"},
        }
    )
    api.drive(sweeps, api.create(sweeps, spec, f"of-{trials}"))
    return OpenSweep(sweeps, f"of-{trials}")


def open_times(file: Path) -> tuple[float, float]:
    """Return the seconds until the first chart of a file answers, and until all parts do."""
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        began = time.perf_counter()
        page.goto(file.as_uri(), wait_until="commit")
        page.locator("figure[data-chart=best][data-ready]").wait_for()
        first = time.perf_counter() - began
        for kind in page.evaluate("Object.keys(hposvcCharts.kinds)"):
            for figure in page.locator(f"figure[data-chart={kind}]").all():
                figure.scroll_into_view_if_needed()
            page.locator(f"figure[data-chart={kind}]:not([data-ready])").first.wait_for(
                state="detached"
            )
        whole = time.perf_counter() - began
        browser.close()
    return first, whole


def measure(folder: Path, trials: int) -> list[str]:
    """Return the row of a sweep."""
    sweep = record(folder / f"{trials}", trials)
    began = time.perf_counter()
    section = Section.read(sweep)
    read = time.perf_counter() - began
    contents = writing.files([section], "html", "report")
    (file,) = writing.write(folder, contents)
    written = time.perf_counter() - began - read
    size = file.stat().st_size / 1e6
    first, whole = open_times(file)
    limit = LIMITS_MB.get(trials)
    return [
        f"{trials:,}",
        f"{read:.1f}",
        f"{written:.1f}",
        f"{size:.2f}" + ("" if limit is None else f" (limit {limit:g})"),
        f"{first:.2f}",
        f"{whole:.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small sweep, to see that it works")
    arguments = parser.parse_args()
    head = ["trials", "read s", "write s", "MB", "first chart s", "whole page s"]
    print(heading())
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(Path(folder), count) for count in ((50,) if arguments.quick else TRIALS)]
    print(table(head, rows))


if __name__ == "__main__":
    main()
