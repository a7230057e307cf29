"""What one more event costs as a sweep grows: a report early and late in a trial, and `status`.

`python benchmarks/long_journals.py` prints Markdown. First, the processor time of a report at some
steps of one trial: in the controller, which also decides, and in what the recorder makes of it for
MLflow. Then the processor time of whole commands, on sweeps of few and of many events.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tables import figure, heading, median, spread, table

from hposvc import api
from hposvc import spec as specs
from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.controller.controller import Controller
from hposvc.driver.loop import Runner
from hposvc.driver.proposals import SyncProposer
from hposvc.events import Attached, Ordered, Proposed, Reported
from hposvc.journal.home import Home
from hposvc.journal.journal import SweepRow
from hposvc.journal.lease import Lease
from hposvc.schedulers.scheduler import NewTrial
from hposvc.spec import SweepSpec, registry
from hposvc.tracking.projection import Projection
from trainables.order import Order

MARKS = (10, 1_000, 10_000, 100_000)  # steps
AROUND = 500  # reports that are timed from each mark on
SELECTS = ("last", "best", "mean_10")
SCHEDULERS = ("fifo", "asha", "median")
COMMANDS = ("status", "best", "ls")


def curve(params: Mapping[str, float], step: int) -> tuple[dict[str, float], float]:
    """A trial's metrics at a step, and how long the step takes."""
    return {"loss": params["lr"] + 1 / step}, 1.0 + params["lr"]


def make_spec(steps: int, select: str, scheduler: str, trials: int = 1) -> SweepSpec:
    """A simulated sweep."""
    return specs.load(
        {
            "metric": {"name": "loss", "goal": "minimize", "select": select},
            "fidelity": {"min": 1, "max": steps},
            "parameters": {"lr": {"min": 1e-5, "max": 1e-1, "log": True}},
            "trials": {"max": trials, "parallel": 8},
            "search": "random",
            "scheduler": scheduler,
            "engine": {"type": "simulate", "curve": "long_journals:curve"},
        }
    )


def report_costs(select: str, scheduler: str, marks: tuple[int, ...]) -> dict[str, list[float]]:
    """Microseconds of a report from each of these steps on, by who applies it."""
    spec = make_spec(marks[-1] + 2 * AROUND, select, scheduler)
    controller = Controller(spec, registry.build(registry.SCHEDULERS, spec.scheduler))
    recorder = Projection(SweepRow("s", spec.name, spec.project, 0.0, specs.dump(spec), {}), spec)

    def decide(event: Attached | Proposed | Ordered | Reported) -> None:
        controller.apply(event)
        pending = list(controller.respond(event))
        while pending:
            answer = pending.pop(0)
            controller.apply(answer)
            recorder.apply(answer)
            pending += controller.respond(answer)

    def happen(event: Attached | Proposed | Ordered | Reported) -> None:
        decide(event)
        recorder.apply(event)

    happen(Attached(0.0, "here:1"))
    move = controller.next()
    assert isinstance(move, NewTrial)
    happen(Proposed(0.0, "t0001", {"lr": 0.01}, {}, move.until, move.milestones, 0.0))
    order = controller.next()
    assert isinstance(order, Order)
    happen(Ordered(0.0, order))
    costs: dict[str, list[float]] = {"controller": [], "recorder": []}
    step = 0
    for mark in marks:
        reports = [
            Reported(float(at), order.id, "t0001", at, {"loss": 1 / at, "accuracy": 0.5})
            for at in range(step + 1, mark + AROUND)
        ]
        for report in reports[: mark - step - 1]:
            happen(report)
            recorder.take_entries()
        timed = reports[mark - step - 1 :]
        costs["controller"].append(timed_us(timed, decide))
        costs["recorder"].append(
            timed_us(timed, lambda report: (recorder.apply(report), recorder.take_entries()))
        )
        step = mark + AROUND - 1
    return costs


def timed_us(reports: list[Reported], use: Callable[[Reported], object]) -> float:
    """The median microseconds of processor time of one of these reports."""
    spent = []
    for report in reports:
        started = time.process_time_ns()
        use(report)
        spent.append((time.process_time_ns() - started) / 1000)
    return median(spent)


def show_reports(marks: tuple[int, ...]) -> None:
    """A row each selection and scheduler, and who applies the report."""
    rows = []
    for scheduler in SCHEDULERS:
        for select in SELECTS:
            for who, costs in report_costs(select, scheduler, marks).items():
                cells = [figure(cost, 1) for cost in costs]
                rows.append([f"{who}, {scheduler}, {select}", *cells, figure(costs[-1] / costs[1])])
    steps = [f"step {mark:,}" for mark in marks]
    print("Microseconds of processor time of a report of one trial.\n")
    print(table(("", *steps, f"last to step {marks[1]:,}"), rows))


def record(home: Path, identifier: str, trials: int, steps: int) -> int:
    """Simulate a sweep into a home; its number of events."""
    place = Home.of(home)
    sweeps = api.Sweeps(place, place.journal())
    spec = make_spec(steps, "last", "fifo", trials)
    api.create(sweeps, spec, identifier)
    Runner(
        sweep=identifier,
        controller=Controller(spec, registry.build(registry.SCHEDULERS, spec.scheduler)),
        backend=Simulation(Setting(identifier, spec, home, home)),
        proposer=SyncProposer(spec, spec.searcher()),
        journal=sweeps.journal,
        lease=Lease(sweeps.journal.store, identifier),
    ).run("here:1")
    events = sweeps.journal.last(identifier)
    sweeps.journal.store.close()
    return events


def command_s(home: Path, *arguments: str) -> float:
    """The processor seconds of one command, start of Python included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "HPOSVC_HOME": f"{home}", "PYTHONPATH": f"{Path(__file__).parent}"}
    subprocess.run(
        [sys.executable, "-m", "hposvc", *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def show_commands(steps: int, repeats: int) -> None:
    """A row each command, on a short and on a long journal, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        short, long = Path(folder) / "short", Path(folder) / "long"
        few, many = record(short, "s", 8, 24), record(long, "s", 80, steps)
        first = command_s(long, "status", "s")
        rows = []
        for command in COMMANDS:
            arguments = [command] if command == "ls" else [command, "s"]
            runs = [
                (command_s(short, *arguments), command_s(long, *arguments)) for _ in range(repeats)
            ]
            ratios = [late / early for early, late in runs]
            early, late = (spread(list(column)) for column in zip(*runs, strict=True))
            rows.append([command, early, late, spread(ratios)])
    print(f"Processor seconds of a command; {repeats} runs of each, in turn.")
    print(f"The very first `status` of the long one, which leaves a snapshot: {figure(first)}.\n")
    head = ("", f"{few:,} events", f"{many:,} events", "ratio")
    print(table(head, rows))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="runs of each command")
    parser.add_argument("--quick", action="store_true", help="small, to see that it works")
    options = parser.parse_args()
    print(heading())
    show_reports((10, 100, 1_000) if options.quick else MARKS)
    show_commands(50 if options.quick else 1_250, 1 if options.quick else options.repeats)


if __name__ == "__main__":
    main()
