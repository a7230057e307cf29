"""One small job in other tools and in hposvc, by the files on the pages of docs/explanation/beside.

`python benchmarks/beside.py [--seeds 3] [--syne-tune PYTHON] [--ado PYTHON] [--only PAGE]` prints
Markdown. PYTHON is the one of an environment with the peer and scikit-learn; a peer without one is
left out. README.md says what the figures mean.
"""

import argparse
import csv
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd
import tables

from hposvc import api
from hposvc.errors import NotFound, StoreError

HERE = Path(__file__).parent
PAGES = HERE.parent / "docs" / "explanation" / "beside"
BLOCK = re.compile(
    r"^```(?:python|yaml|toml)\n((?:\"\"\"|# )(\w+\.(?:py|yaml|toml))(?:\"\"\")?\n.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
OURS = ("train.py", "sweep.yaml")
SYNE_AGAIN = (
    "from syne_tune.experiments import load_experiment\n"
    "load_experiment('digits', load_tuner=True).tuner.run()"
)
KILL_AFTER = 8  # ended trials
AFTERWARDS_S = 2  # so that nobody is killed just while writing what was looked at
LIMIT_S = 600

Command = Sequence[str]
Ended = Mapping[str, float]  # last accuracy of each trial that has ended, as it is recorded


@dataclass(frozen=True)
class Job:
    """The job as one tool has it."""

    name: str
    files: Mapping[str, str]
    run: Command
    ended: Callable[[Path], Ended]
    again: Command = ()  # continues after a kill; empty: that is not tried
    prepare: Sequence[Command] = ()  # not timed

    @property
    def lines(self) -> int:
        """The lines that a user writes, empty ones aside."""
        return sum(bool(line.strip()) for text in self.files.values() for line in text.splitlines())


def main() -> None:
    args = _parser().parse_args()
    print(tables.heading(("ray", "optuna", "scikit-learn")))
    for theirs in _peers(args):
        if args.only not in (None, theirs.name):
            continue
        ours = Job(
            "hposvc",
            {name: text for name, text in files(theirs.name).items() if name in OURS},
            (sys.executable, "-m", "hposvc", "run", "sweep.yaml"),
            _ended_ours,
            (sys.executable, "-m", "hposvc", "resume", "last") if theirs.again else (),
        )
        print(table([theirs, ours], args.seeds), flush=True)


def files(page: str) -> dict[str, str]:
    """Return the files that a page shows, by the names in their first lines."""
    return {name: text for text, name in BLOCK.findall((PAGES / f"{page}.md").read_text())}


def table(jobs: Sequence[Job], seeds: int) -> str:
    """Return what the tools came to, run in turn with each seed."""
    runs = [(job, *measure(job, seed)) for seed in range(seeds) for job in jobs]
    rows = [
        [
            job.name,
            str(job.lines),
            tables.spread([seconds for of, seconds, _ in runs if of is job], 0),
            tables.spread([best for of, _, best in runs if of is job], 3),
            after_kill(job) if job.again else "–",
        ]
        for job in jobs
    ]
    return tables.table(["", "lines", "s", "best accuracy", "kept after a kill"], rows)


def measure(job: Job, seed: int) -> tuple[float, float]:
    """Return the seconds of the whole job, and its best accuracy."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = _folder(job, Path(name), seed)
        began = time.perf_counter()
        _finish(_start(job.run, folder), folder)
        took = time.perf_counter() - began
        return took, max(job.ended(folder).values())


def after_kill(job: Job) -> str:
    """Kill all processes of a job once trials have ended; count those known after it went on."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = _folder(job, Path(name), 0)
        process = _start(job.run, folder)
        while len(job.ended(folder)) < KILL_AFTER:
            if process.poll() is not None:
                raise SystemExit(f"{job.name} ended before it could be killed")
            time.sleep(0.02)
        time.sleep(AFTERWARDS_S)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        before = job.ended(folder)
        goes_on = _start(job.again, folder).wait(LIMIT_S) == 0
        after = job.ended(folder)
        kept = sum(after.get(trial) == accuracy for trial, accuracy in before.items())
        end = f"{len(after)} at the end" if goes_on else "it cannot go on"
        return f"{kept} of {len(before)}; {end}"


def _folder(job: Job, folder: Path, seed: int) -> Path:
    """Write the files of a job, with another seed, and prepare it."""
    shutil.copy(HERE / "digits_net.py", folder)
    for name, text in job.files.items():
        (folder / name).write_text(re.sub(r"(seed[=:] ?)0", rf"\g<1>{seed}", text))
    for command in job.prepare:
        _finish(_start(command, folder), folder)
    return folder


def _start(command: Command, folder: Path) -> subprocess.Popen[bytes]:
    own = {
        "HOME": str(folder),  # where Ray Tune and ado keep results
        "HPOSVC_HOME": str(folder / "home"),
        "SYNETUNE_FOLDER": str(folder / "syne"),
        "PYTHONPATH": os.pathsep.join([str(folder), str(HERE.parent)]),
        "OMP_NUM_THREADS": "1",
    }
    with (folder / "output").open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **own},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _finish(process: subprocess.Popen[bytes], folder: Path) -> None:
    if process.wait(LIMIT_S):
        raise SystemExit(f"{process.args} failed:\n{(folder / 'output').read_text()[-3000:]}")


def _ended_ours(folder: Path) -> Ended:
    if not (folder / "home" / "hposvc.db").exists():
        return {}
    try:
        trials = api.load(api.Sweeps.open(f"{folder / 'home'}"), "last").trials()
    except (NotFound, StoreError):  # not yet
        return {}
    return {row.trial: row.value for row in trials if row.state in ("COMPLETED", "STOPPED")}


def _ended_optuna(folder: Path) -> Ended:
    # Optuna's own reader would make the tables, in the way of the study.
    query = (
        "SELECT number, value FROM trials JOIN trial_values USING (trial_id) "
        "WHERE state IN ('COMPLETE', 'PRUNED')"
    )
    try:
        with closing(sqlite3.connect(f"file:{folder}/study.db?mode=ro", uri=True)) as database:
            return {str(number): value for number, value in database.execute(query)}
    except sqlite3.OperationalError:  # there is no such file or table yet
        return {}


def _ended_tune(folder: Path) -> Ended:
    reports = (folder / "ray_results").glob("*/*/result.json")
    lasts = {path.parent.name: json.loads(path.read_text().splitlines()[-1]) for path in reports}
    return {name: last["accuracy"] for name, last in lasts.items()}


def _ended_syne(folder: Path) -> Ended:
    try:
        rows = pd.read_csv(folder / "syne" / "digits" / "results.csv.zip")
    except (FileNotFoundError, zipfile.BadZipFile):  # not yet, or being written
        return {}
    lasts = rows[(rows.st_decision == "STOP") | (rows.epoch == rows.epoch.max())]
    return {f"{row.trial_id}": row.accuracy for row in lasts.itertuples()}


def _ended_ado(python: str, folder: Path) -> Ended:
    show = ("show", "measurements", "operation", "--use-latest", "-o", "csv")
    _finish(_start([_ado(python), *show, "--output-file", "points.csv"], folder), folder)
    with (folder / "points.csv").open() as file:
        return {row["identifier"]: float(row["accuracy"]) for row in csv.DictReader(file)}


def _ado(python: str) -> str:
    return str(Path(python).with_name("ado"))


def _peers(args: argparse.Namespace) -> Iterator[Job]:
    """Yield the job of each peer that is there, by the name of its page."""

    def theirs(page: str) -> dict[str, str]:
        return {name: text for name, text in files(page).items() if name not in OURS}

    study = (sys.executable, "study.py")
    yield Job("optuna", theirs("optuna"), study, _ended_optuna, study)
    yield Job("ray-tune", theirs("ray-tune"), (sys.executable, "tune_digits.py"), _ended_tune)
    if args.syne_tune:
        launch, again = (args.syne_tune, "launch.py"), (args.syne_tune, "-c", SYNE_AGAIN)
        yield Job("syne-tune", theirs("syne-tune"), launch, _ended_syne, again)
    if args.ado:
        create = (_ado(args.ado), "create")
        yield Job(
            "ado",
            theirs("ado"),
            (*create, "operation", "-f", "operation.yaml", "--use-latest", "space"),
            partial(_ended_ado, args.ado),
            prepare=[
                (args.ado, "-m", "pip", "install", "-q", "--no-deps", "."),
                (*create, "space", "-f", "space.yaml", "--new-sample-store"),
            ],
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="beside.py", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--syne-tune", metavar="PYTHON", type=os.path.abspath)
    parser.add_argument("--ado", metavar="PYTHON", type=os.path.abspath)
    parser.add_argument("--only", metavar="PAGE", help="the page of one tool")
    return parser


if __name__ == "__main__":
    main()
