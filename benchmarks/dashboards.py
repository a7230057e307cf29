"""What people wait for who look at a sweep: our report and our page beside Optuna Dashboard.

`python benchmarks/dashboards.py` prints Markdown. The sweeps are those of report.py. The same sweep
is (a) a report, opened from disk; (b) a page of `hposvc serve`; (c) a study in SQLite, which
`optuna-dashboard` shows. In each round both servers start, and once they answer the three are
opened in turn: first by a browser that has seen nothing, then by another one, then by that one
again.

Usable is when the best value and the history of the search are there. All charts: ours, one page,
is scrolled from chart to chart; of Optuna Dashboard the pages History, Analytics and Smart
Selection are opened by their buttons. It leaves out contours of many trials unless asked for them,
and so does this.
"""

import argparse
import math
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path

import optuna
import psutil
from agents_exchange import free_port
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState
from playwright.sync_api import Browser, Page, sync_playwright
from report import CHROMIUM, PARAMETERS, record
from tables import figure, heading, median, spread, table

from hposvc import api
from hposvc.open_sweep import OpenSweep
from hposvc.reporting import writing
from hposvc.state.trial import TrialState as Trial

TRIALS = (1000, 10_000)
ROUNDS = 3
WAIT_MS = 600_000
START_S = 300.0
REPORT, PAGE, PEER = "report from disk", "page of `hposvc serve`", "Optuna Dashboard"
FIRST, OTHER, AGAIN = "server's first look", "another browser", "that browser again"
SCALE_HEAD = ["trials", "what", "write s", "file MB", "server MB", "after", "most in a process"]
HEAD = [
    "trials",
    "what is looked at",
    "by",
    "wire MB",
    "usable s",
    "importance s",
    "all charts s",
    "heap MB",
    "charts",
]
STATES = {"COMPLETED": TrialState.COMPLETE, "STOPPED": TrialState.PRUNED}


@dataclass(frozen=True)
class Look:
    """One opening of a page."""

    usable_s: float
    importance_s: float
    all_s: float
    wire_mb: float
    heap_mb: float
    charts: int


def distribution(name: str) -> BaseDistribution:
    """Return Optuna's form of a parameter."""
    stated = PARAMETERS[name]
    if "values" in stated:
        return CategoricalDistribution(stated["values"])
    return FloatDistribution(stated["min"], stated["max"], log=stated.get("log", False))


def frozen(trial: Trial, names: Mapping[str, BaseDistribution]) -> FrozenTrial:
    """Return a trial as Optuna keeps it: what was stopped early is pruned."""
    copy = optuna.create_trial(
        state=STATES[trial.state],
        params=dict(trial.params),
        distributions={name: names[name] for name in trial.params},
        value=trial.value,
        intermediate_values=dict(sorted(trial.steps.items())),
    )
    copy.datetime_start = datetime.fromtimestamp(trial.ordered_at)
    copy.datetime_complete = datetime.fromtimestamp(trial.ordered_at + trial.seconds)
    return copy


def export(sweep: OpenSweep, file: Path) -> None:
    """Write a sweep as a study of Optuna's into SQLite."""
    trials = sweep.record().state.trials.values()
    names = {name: distribution(name) for name in PARAMETERS}
    study = optuna.create_study(
        storage=f"sqlite:///{file}", study_name=sweep.name, direction="minimize"
    )
    study.set_metric_names(["loss"])
    study.add_trials([frozen(trial, names) for trial in trials])


def write_report(home: Path, name: str, file: Path) -> tuple[float, float]:
    """Return the seconds that a process of its own takes for a report, and its memory in MB."""
    context = get_context("spawn")
    taker, giver = context.Pipe(duplex=False)
    process = context.Process(target=_write, args=(home, name, file, giver))
    process.start()
    seconds, memory_mb = taker.recv()
    process.join()
    return seconds, memory_mb


def _write(home: Path, name: str, file: Path, giver) -> None:  # type: ignore[no-untyped-def]
    began = time.perf_counter()
    writing.report([OpenSweep(api.Sweeps.open(home), name)], file)
    taken = time.perf_counter() - began
    giver.send((taken, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3))


@contextmanager
def served(words: list[str], port: int, **variables: str) -> Iterator[psutil.Process]:
    """Run a server until the block ends."""
    process = subprocess.Popen(
        words,
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        answers(port)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def answers(port: int) -> None:
    """Wait until a server listens, on a busy machine too."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"nobody listens on {port}"
            time.sleep(0.2)


def memory_mb(server: psutil.Process) -> tuple[float, float]:
    """Return what a server and its workers hold, and the most that one of them ever held, in MB.

    What they share counts once.
    """
    processes = [server, *server.children(recursive=True)]
    held = sum(process.memory_full_info().pss for process in processes) / 1e6
    peaks = []
    for process in processes:
        status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        (line,) = (line for line in status if line.startswith("VmHWM"))
        peaks.append(int(line.split()[1]) * 1024 / 1e6)
    return held, max(peaks)


Times = tuple[float, float, float, int]  # usable, with importance, with all charts; their number


def ours(page: Page) -> Times:
    """Return when a page or a report of ours is usable, shows importance, and shows all charts."""
    page.locator("figure[data-chart=best][data-ready]").wait_for()
    usable = time.perf_counter()
    # The page fetches a chart as it comes near the window.
    page.locator("#chart-importance, figure[data-chart=importance]").scroll_into_view_if_needed()
    page.locator("figure[data-chart=importance] svg").first.wait_for()
    importance = time.perf_counter()
    # A chart that does not apply takes its figure away.
    for waiting in page.evaluate(
        "[...document.querySelectorAll('figure.waiting')].map((f) => f.id)"
    ):
        page.evaluate("(id) => document.getElementById(id)?.scrollIntoView()", waiting)
        page.locator(f"#{waiting}.waiting").wait_for(state="detached")
    moving = page.evaluate("Object.keys(hposvcCharts.kinds)")
    for chart in page.locator(", ".join(f"figure[data-chart={kind}]" for kind in moving)).all():
        chart.scroll_into_view_if_needed()
    undrawn = [f"figure[data-chart={kind}]:not([data-ready])" for kind in moving]
    page.locator(", ".join(undrawn)).first.wait_for(state="detached")
    return usable, importance, time.perf_counter(), page.locator("figure[data-chart]").count()


def theirs(page: Page) -> Times:
    """Return when Optuna Dashboard is usable, shows importance, and has shown all charts."""
    page.get_by_text("Best Trial (number=").wait_for()
    drawn(page, "#plot-history .trace")
    usable = time.perf_counter()
    drawn(page, "#graph-hyperparameter-importances .trace .point")
    importance = time.perf_counter()
    drawn(page, "#graph-timeline .point", "#graph-intermediate-values .trace")
    page.locator("a[href$='/analytics']").click()
    drawn(page, "#plot-slice .trace", "#graph-rank .trace", "#plot-edf-0 .trace")
    page.locator("a[href$='/smartSelection']").click()
    drawn(page, "#plot-parallel-coordinate .y-axis")
    return usable, importance, time.perf_counter(), 8


def drawn(page: Page, *parts: str) -> None:
    """Wait for parts of charts."""
    for part in parts:
        page.locator(part).first.wait_for(state="attached")


def look(page: Page, address: str, wait: Callable[[Page], Times]) -> Look:
    """Open an address."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda said: sizes.append(said["encodedDataLength"]))
    session.send("Performance.enable")
    began = time.perf_counter()
    page.goto(address, wait_until="commit")
    usable, importance, whole, charts = wait(page)
    figures = session.send("Performance.getMetrics")["metrics"]
    heap = next(each["value"] for each in figures if each["name"] == "JSHeapUsedSize")
    session.detach()
    times = (usable - began, importance - began, whole - began)
    return Look(*times, sum(sizes) / 1e6, heap / 1e6, charts)


def visit(browser: Browser, addresses: Mapping[str, str]) -> Iterator[tuple[str, str, Look]]:
    """Yield the looks of a round, ours and theirs in turn: what is looked at, by whom, the look."""
    for by in (FIRST, OTHER):
        for what, address in addresses.items():
            wait = theirs if what == PEER else ours
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            context.set_default_timeout(WAIT_MS)
            page = context.new_page()
            if what != REPORT or by == OTHER:
                yield what, by, look(page, address, wait)
            if by == OTHER:
                page.goto("about:blank")
                yield what, AGAIN, look(page, address, wait)
            context.close()


def compare(
    folder: Path, trials: int, rounds: int, browser: Browser
) -> tuple[list[list[str]], list[list[str]]]:
    """Return what files and servers weigh, and a row for each way to look at a sweep."""
    home, name, report = folder / f"{trials}", f"of-{trials}", folder / f"{trials}.html"
    study = folder / f"{trials}.db"
    if not home.exists():
        record(home, trials)
    write_s, write_mb = write_report(home, name, report)
    exported, began = study.exists(), time.perf_counter()
    if not exported:
        export(OpenSweep(api.Sweeps.open(home), name), study)
    export_s = math.nan if exported else time.perf_counter() - began
    looks: dict[tuple[str, str], list[Look]] = {}
    memory: dict[str, list[tuple[float, float, float]]] = {}
    for _ in range(rounds):
        our_port, their_port = free_port(), free_port()
        serve = [sys.executable, "-m", "hposvc", "serve", "--port", f"{our_port}"]
        program = f"{Path(sys.executable).with_name('optuna-dashboard')}"
        dashboard = [program, f"sqlite:///{study}", "--port", f"{their_port}", "-q"]
        with (
            served(serve, our_port, HPOSVC_HOME=f"{home}") as our_server,
            served(dashboard, their_port) as their_server,
        ):
            servers = {PAGE: our_server, PEER: their_server}
            addresses = {
                REPORT: report.as_uri(),
                PAGE: f"http://127.0.0.1:{our_port}/sweeps/{name}",
                PEER: f"http://127.0.0.1:{their_port}/dashboard/studies/1",
            }
            empty = {what: memory_mb(server)[0] for what, server in servers.items()}
            for what, by, seen in visit(browser, addresses):
                looks.setdefault((what, by), []).append(seen)
                print(trials, what, by, seen, file=sys.stderr, flush=True)
            for what, server in servers.items():
                memory.setdefault(what, []).append((empty[what], *memory_mb(server)))
    weights = [
        [
            *(f"{trials:,}", REPORT, figure(write_s, 1), figure(report.stat().st_size / 1e6)),
            *("–", "–", f"{figure(write_mb, 0)}"),
        ],
        [f"{trials:,}", PAGE, "–", "–", *held(memory[PAGE])],
        [
            *(f"{trials:,}", PEER, figure(export_s, 1), figure(study.stat().st_size / 1e6)),
            *held(memory[PEER]),
        ],
    ]
    rows = [
        [
            *(f"{trials:,}", what, by),
            figure(median([each.wire_mb for each in seen])),
            spread([each.usable_s for each in seen]),
            spread([each.importance_s for each in seen]),
            spread([each.all_s for each in seen]),
            figure(median([each.heap_mb for each in seen]), 0),
            f"{seen[0].charts}",
        ]
        for (what, by), seen in sorted(looks.items(), key=order)
    ]
    return weights, rows


def held(memory: list[tuple[float, float, float]]) -> list[str]:
    """Return the median memory of a server, before the looks, after them, and at its peak."""
    return [figure(median(figures), 0) for figures in zip(*memory, strict=True)]


def order(row: tuple[tuple[str, str], list[Look]]) -> tuple[int, int]:
    """Return the place of a row: by who looks, then by what is looked at."""
    (what, by), _ = row
    return [FIRST, OTHER, AGAIN].index(by), [REPORT, PAGE, PEER].index(what)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, nargs="+", default=TRIALS, choices=TRIALS)
    parser.add_argument(
        "--folder", type=Path, help="keep sweeps and studies here, and take those that are here"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    os.environ["HPOSVC_REPORT"] = "off"
    print(heading(("optuna", "optuna-dashboard", "playwright")))
    weights, rows = [], []
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as engine:
        folder = arguments.folder or Path(scratch)
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for trials in arguments.trials:
            weighed, found = compare(folder, trials, arguments.rounds, browser)
            weights += weighed
            rows += found
        browser.close()
    print(table(HEAD, rows))
    print(table(SCALE_HEAD, weights))


if __name__ == "__main__":
    main()
