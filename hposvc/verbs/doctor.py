"""`doctor`: check machines, with a remedy for each problem, and MLflow's copy of a sweep."""

import os
import platform
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.parse import urlsplit

import click
from packaging.requirements import Requirement
from rich.table import Table
from rich.text import Text
from sqlalchemy import make_url

from hposvc.api import Sweeps
from hposvc.errors import OUT_OF_REACH, DamagedJournal, Denied, OutOfReach, StoreError
from hposvc.journal.damage import find_remains
from hposvc.journal.home import PRIVATE, Home
from hposvc.journal.journal import COPY_WITH_THEM
from hposvc.operation import operation
from hposvc.remote.server.connection import ServedSweeps
from hposvc.spec import registry
from hposvc.text import format_bytes
from hposvc.tracking.answers import MlflowComparison
from hposvc.tracking.mlflow_server import hide_passwords, quiet_mlflow
from hposvc.verbs.completion import complete_sweep
from hposvc.verbs.options import Shared, ray_address, verb
from hposvc.views.console import make_table, show

Level = Literal["ok", "warn", "fail"]

PACKAGES = ("hposvc", "searchers", "trainables", "cluster")
GIB = 2**30
MIN_DISK = 5 * GIB
MIN_SHM = GIB // 2  # for Ray's objects, and batches that data loaders pass between processes
TIMEOUT_S = 20.0
COMPARE_S = 600.0  # for which a server may compare MLflow with the journal
COUNT_GPUS = "import torch; print(torch.cuda.device_count())"
COLOURS: dict[Level, str] = {"ok": "green", "warn": "yellow", "fail": "bold red"}
REMEDIES = {
    "tell": "--fix tells it again",
    "renew": "--fix makes the run anew",
    "kept": "the trial itself logged it; it stays",
}


@verb
@click.argument("sweep", metavar="[ID]", required=False, shell_complete=complete_sweep)
@click.option("--deep", is_flag=True, help="Start Ray if none runs, and run a probe on every node.")
@click.option("--fix", is_flag=True, help="Write data of sweep ID that MLflow lacks.")
@ray_address
def doctor_command(
    shared: Shared, sweep: str | None, deep: bool, fix: bool, address: str | None
) -> int:
    """Check this machine and its cluster.

    With ID: compare what MLflow holds of that sweep with the journal.
    """
    if sweep is not None and deep:
        raise click.UsageError("--deep is about machines; leave it out, or the ID")
    if sweep is None and fix:
        raise click.UsageError("--fix is about a sweep; give its ID")
    if sweep is None:
        checks = list(examine(shared.find_server() or shared.home, deep, address))
        if not shared.json([asdict(check) for check in checks]):
            show(table(checks))
        return OUT_OF_REACH if any(check.state == "fail" for check in checks) else 0
    comparison = (repair_mlflow if fix else compare_mlflow)(shared.open_place(), sweep)
    if not shared.json(compare_mlflow.data(comparison)):
        if comparison.differences:
            show(difference_table(comparison))
        show(agreement(comparison))
    return 0 if comparison.agrees else OUT_OF_REACH


@dataclass(frozen=True)
class Check:
    """The result of a check."""

    check: str
    state: Level
    found: str
    remedy: str = ""


def table(checks: Iterable[Check]) -> Table:
    """Return the table of checks, one row each, with the remedy below the finding."""
    made = make_table("", "check", "found")
    for check in checks:
        text = Text(check.found)
        if check.remedy:
            text.append(f"\n→ {check.remedy}", "bold")
        made.add_row(Text(check.state, COLOURS[check.state]), check.check, text)
    return made


def examine(
    place: ServedSweeps | Path | None = None, deep: bool = False, address: str | None = None
) -> Iterator[Check]:
    """Yield the result of every check of a home, or of the way to a server, as it is made.

    Args:
        place: a server, or the folder of a home; None: HPOSVC_HOME, or ~/.hposvc.
        deep: start a local Ray if none runs, and probe every node of the cluster, which takes
            some seconds.
        address: of a Ray cluster; None: RAY_ADDRESS, or the local Ray.
    """
    if isinstance(place, ServedSweeps):
        yield from _examine_server(place)
        return
    yield Check("python", "ok", platform.python_version())  # pip has checked that it will do
    yield _packages()
    yield from _versions()
    yield _shared_memory()
    yield _gpus()
    try:
        home = Home.of(place)
    except StoreError as error:
        yield Check("home", "fail", str(error), "put the journal's URL there, or unset it")
        return
    yield from _home_checks(home)
    yield _mlflow(home)
    yield from _ray(home, deep, address or os.environ.get("RAY_ADDRESS"))


def _examine_server(server: ServedSweeps) -> Iterator[Check]:
    try:
        server.http.get("/readyz")
    except OutOfReach as error:
        yield Check("server", "fail", f"{error}", "hposvc serve, on its machine")
        return
    yield Check("server", "ok", f"{server.http.name} answers")
    try:
        server.http.get("sweeps", {"limit": 1})
    except Denied as error:
        yield Check("token", "fail", f"{error}", "ask for one: hposvc token create")
    else:
        yield Check("token", "ok", "the server lets this user read sweeps")


def _packages() -> Check:
    """Check that our packages are the ones imported: another `cluster` may come before ours."""
    homes = {}
    for name in PACKAGES:
        spec = find_spec(name)
        origin = None if spec is None else spec.origin
        homes[name] = str(Path(origin).parents[1]) if origin else "no place"
    if len(set(homes.values())) == 1:
        return Check("packages", "ok", f"all four in {homes['hposvc']}")
    places = ", ".join(f"{name} in {home}" for name, home in homes.items())
    remedy = "uninstall or rename the package of the same name, or start from another folder"
    return Check("packages", "fail", places, remedy)


def _versions() -> Iterator[Check]:
    """Check the installed version of each requirement."""
    try:
        requirements = [Requirement(text) for text in requires("hposvc") or ()]
    except PackageNotFoundError:
        yield Check("hposvc", "warn", "runs from its source", "pip install -e .")
        return
    yield Check("hposvc", "ok", version("hposvc"))
    for requirement in requirements:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            yield Check(requirement.name, "fail", "not installed", f"pip install '{requirement}'")
            continue
        if requirement.specifier.contains(installed, prereleases=True):
            yield Check(requirement.name, "ok", installed)
        else:
            yield Check(requirement.name, "fail", installed, f"pip install '{requirement}'")


def _shared_memory() -> Check:
    folder = Path("/dev/shm")
    if not folder.exists():
        return Check("shared memory", "ok", "this system has no /dev/shm")
    size = shutil.disk_usage(folder).total
    size_text = format_bytes(size)
    if size < MIN_SHM:
        return Check("shared memory", "warn", size_text, "in a container: --shm-size=2g")
    return Check("shared memory", "ok", size_text)


def _gpus() -> Check:
    """Check that the NVIDIA driver and torch count the same number of GPUs."""
    if shutil.which("nvidia-smi") is None:
        return Check("gpus", "ok", "none (there is no nvidia-smi)")
    listed = _output_of("nvidia-smi", "-L").splitlines()
    names = [line for line in listed if line.startswith("GPU ")]
    seen = _output_of(sys.executable, "-c", COUNT_GPUS).strip()
    if seen == str(len(names)):
        return Check("gpus", "ok", f"{seen}: {names[0].partition(' (')[0]}" if names else "none")
    counts = f"nvidia-smi lists {len(names)}, torch sees {seen or 'none'}"
    return Check(
        "gpus", "warn", counts, "install a torch for this driver; see CUDA_VISIBLE_DEVICES"
    )


def _output_of(*command: str) -> str:
    """Return the output of a command; empty if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _home_checks(home: Home) -> Iterator[Check]:
    """Check the home's folder, its journal, and sweeps whose driver died."""
    remedy = "set HPOSVC_HOME to a folder on a local disk that you can write to"
    try:
        home.path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home.path):
            free = shutil.disk_usage(home.path).free
    except OSError as error:
        yield Check("home", "fail", f"{home.path}: {error.strerror}", remedy)
        if not home.path.is_dir():
            return
    else:
        summary = f"{home.path}, {format_bytes(free)} free"
        if free < MIN_DISK:
            yield Check("home", "warn", summary, "make room: checkpoints go there")
        else:
            yield Check("home", "ok", summary)
    if home.path.stat().st_mode & stat.S_IROTH:
        message = f"{home.path}: all users of this machine can read it"
        yield Check("privacy", "warn", message, f"chmod 700 {home.path}, unless others are to")
    try:
        sweeps = Sweeps.open(home.path)
        sweeps.journal.store.check(deep=True)
        dead = [row.id for row in sweeps.journal.sweeps() if sweeps.driver_of(row) == "dead"]
        gaps = [*sweeps.journal.gaps()]
    except DamagedJournal as error:
        yield _damaged(home, error)
        return
    except StoreError as error:
        remedy = "see HPOSVC_DB and HPOSVC_DB_FILE; without them the journal is a file of the home"
        yield Check("journal", "fail", str(error), remedy)
        return
    yield Check("journal", "ok", str(sweeps.journal.store))
    for sweep, events in gaps:
        yield Check("sweep", "fail", f"{sweep}: {events}", COPY_WITH_THEM)
    for sweep in dead:
        remedy = f"hposvc resume {sweep}, or hposvc stop {sweep}"
        yield Check("sweep", "warn", f"{sweep}: its driver died", remedy)


def _damaged(home: Home, error: DamagedJournal) -> Check:
    """Say what a damaged journal still holds, and how to go on."""
    file = Path(make_url(home.database).database or "").absolute()
    try:
        remains = f"{find_remains(file)}"
    except OSError as failure:
        remains = f"not read, for want of a copy: {failure}"
    damage = f"{error}".partition("; ")[0]
    remedy = (
        "begin new sweeps in another home (HPOSVC_HOME). For these, put back a copy of before, or: "
        f"sqlite3 {file} .recover | sqlite3 NEW; then NEW in place of {file.name}, and no -wal"
    )
    return Check("journal", "fail", f"{damage}; {remains}", remedy)


def _mlflow(home: Home) -> Check:

    scheme = urlsplit(home.tracking_uri).scheme
    shown = hide_passwords(home.tracking_uri)
    probe = {"http": _probe_server, "https": _probe_server, "sqlite": _probe_sqlite}.get(scheme)
    if probe is None:
        return Check("mlflow", "ok", f"{shown} (not looked into)")
    try:
        probe(home.tracking_uri)
    except (OSError, HTTPException, sqlite3.Error, ValueError) as error:
        remedy = "start the server, or unset MLFLOW_TRACKING_URI to use a file of the home"
        return Check("mlflow", "fail", f"{shown}: {error}", remedy)
    return Check("mlflow", "ok", shown)


def _probe_server(uri: str) -> None:
    """Check that a server answers; asking for a password (401, 403) is an answer."""
    place = urlsplit(uri)._replace(netloc=urlsplit(uri).netloc.rpartition("@")[2]).geturl()
    try:
        with urllib.request.urlopen(f"{place.rstrip('/')}/health", timeout=TIMEOUT_S):
            pass
    except HTTPError as error:
        if error.code not in (401, 403):
            raise


def _probe_sqlite(uri: str) -> None:

    file = Path(make_url(uri).database or "")
    if file.exists():
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
            connection.execute("select count(*) from sqlite_master")


def _ray(home: Home, deep: bool, given_address: str | None) -> Iterator[Check]:
    from cluster.own_ray import find_others, own_address

    folder = home.path / "ray"
    address = given_address or own_address(folder)
    if not given_address and (others := find_others(folder)):
        text = f"another Ray runs here, at {' and '.join(others)}; each takes all CPUs for its own"
        yield Check("other ray", "warn", text, "use one HPOSVC_HOME, or join by RAY_ADDRESS")
    if address is None and not deep:
        yield Check("ray", "ok", "none of this home runs; a sweep starts one (--deep tries it)")
        return
    remedy = (
        "check its address and its token" if given_address else "see the log in HPOSVC_HOME/ray"
    )
    yield from examine_cluster(home, address, deep, remedy)


def examine_cluster(home: Home, address: str | None, deep: bool, remedy: str) -> Iterator[Check]:
    """Check that a cluster works, and each of its nodes.

    Args:
        address: of the cluster; None: start a local Ray.
        deep: probe every node.
        remedy: for a cluster that does not answer.
    """
    from cluster import health
    from cluster.own_ray import Unreachable

    name = address or "one of this machine's own"
    try:
        text, nodes = health.ask(address or "local", home.path / "ray", home.path if deep else None)
    except Unreachable as error:
        yield Check("ray", "fail", f"{name}: {error}", remedy)
        return
    yield Check("ray", "ok", f"{name}: {text}")
    for node in nodes:
        label = f"node {node.name}"
        if not node.issues:
            yield Check(label, "ok", node.text)
        for issue in node.issues:
            yield Check(label, "fail" if issue.fatal else "warn", issue.text, issue.remedy)


@operation("GET", "sweeps/{sweep}/doctor", "read", work_s=COMPARE_S)
def compare_mlflow(sweeps: Sweeps, sweep: str) -> MlflowComparison:
    """Compare what MLflow holds of a sweep with the journal.

    Raises:
        NotFound: there is no such sweep.
        TrackerError: MLflow is out of reach.
    """
    comparison: MlflowComparison = _reconciler(sweeps, sweep).compare()
    return comparison


@operation("POST", "sweeps/{sweep}/doctor", "steer", repeatable=True)
def repair_mlflow(sweeps: Sweeps, sweep: str) -> MlflowComparison:
    """Write what MLflow lacks of a sweep; the result is the comparison after that.

    Raises:
        NotFound, TrackerError: see `compare_mlflow`.
    """
    comparison: MlflowComparison = _reconciler(sweeps, sweep).mend()
    return comparison


def _reconciler(sweeps: Sweeps, sweep: str) -> Any:
    quiet_mlflow()  # before mlflow is imported, which takes seconds
    row = sweeps.find(sweep)
    return registry.resolve("hposvc.tracking.reconcile:Reconciler")(
        sweeps.home, sweeps.journal, row
    )


def difference_table(comparison: MlflowComparison) -> Table:
    """Return the table of the differences between MLflow and the journal, one row each."""
    made = make_table("run", "what", "in MLflow", "in the journal", "remedy")
    for difference in comparison.differences:
        made.add_row(
            difference.run or comparison.sweep,
            difference.what,
            difference.found,
            difference.expected,
            REMEDIES[difference.remedy],
        )
    return made


def agreement(comparison: MlflowComparison) -> str:
    """Summarize a comparison of MLflow with the journal in one line."""
    if comparison.stance == "unrecorded":
        return f"{comparison.sweep}: not recorded in MLflow, being a large simulation"
    compared = f"{comparison.runs} runs, {comparison.points} points compared"
    if comparison.agrees:
        mended = ", now that it was mended" if comparison.stance == "mended" else ""
        return f"{comparison.sweep}: MLflow agrees with the journal{mended}: {compared}"
    count = sum(difference.remedy != "kept" for difference in comparison.differences)
    remedy = {
        "compared": f"hposvc doctor {comparison.sweep} --fix mends it",
        "driven": "its driver is at work, and the recorder mends that when the sweep is over",
        "mended": "what is left was changed meanwhile; try again",
    }[comparison.stance]
    differs = f"MLflow differs from the journal in {count} things ({compared})"
    return f"{comparison.sweep}: {differs}; {remedy}"
