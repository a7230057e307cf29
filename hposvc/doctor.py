"""Whether this machine can run sweeps: what was found, and what to do about it."""

import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from sqlalchemy import make_url

from cluster import health
from cluster.fitness import Fitness
from hposvc.api import Sweeps
from hposvc.home import Home
from hposvc.lease import driver_state
from hposvc.store import StoreError
from hposvc.tracking.recorder import hidden

Level = Literal["ok", "warn", "fail"]

PACKAGES = ("hposvc", "searchers", "trainables", "cluster")
OLDEST = (3, 11)
GIB = 2**30
LEAST_DISK = 5 * GIB
LEAST_SHM = GIB // 2  # Ray's objects, and what loaders pass between processes
ANSWER_S = 20.0
COUNT_GPUS = "import torch; print(torch.cuda.device_count())"


@dataclass(frozen=True)
class Check:
    """One finding."""

    check: str
    state: Level
    found: str
    remedy: str = ""


def examine(
    home: Path | None = None, deep: bool = False, address: str | None = None
) -> Iterator[Check]:
    """All checks, as they are done.

    Args:
        deep: start a Ray of this machine's own if there is none, and probe every node of the
            cluster, which takes some seconds.
        address: of a Ray cluster; None: RAY_ADDRESS, or this machine's own.
    """
    yield _python()
    yield _packages()
    yield from _versions()
    yield _shared_memory()
    yield _gpus()
    try:
        place = Home.of(home)
    except StoreError as error:
        yield Check("home", "fail", str(error), "put the journal's URL there, or unset it")
        return
    yield from _of_home(place)
    yield _mlflow(place)
    yield from _ray(place, deep, address or os.environ.get("RAY_ADDRESS"))


def _python() -> Check:
    found = platform.python_version()
    if sys.version_info < OLDEST:
        return Check("python", "fail", found, "install Python 3.11 or later")
    return Check("python", "ok", found)


def _packages() -> Check:
    """Our packages have plain names: another's `cluster` may stand before ours."""
    homes = {name: _origin(name) for name in PACKAGES}
    if len(set(homes.values())) == 1:
        return Check("packages", "ok", f"all four in {homes['hposvc']}")
    found = ", ".join(f"{name} in {home}" for name, home in homes.items())
    remedy = "uninstall, or rename, what has the name of ours; or start from another folder"
    return Check("packages", "fail", found, remedy)


def _origin(name: str) -> str:
    spec = find_spec(name)
    return "no place" if spec is None or not spec.origin else str(Path(spec.origin).parents[1])


def _versions() -> Iterator[Check]:
    """What is installed beside what we ask for."""
    try:
        wanted = [Requirement(text) for text in requires("hposvc") or ()]
    except PackageNotFoundError:
        yield Check("hposvc", "warn", "runs from its source", "pip install -e .")
        return
    for each in wanted:
        if each.marker is not None and not each.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(each.name)
        except PackageNotFoundError:
            yield Check(each.name, "fail", "not installed", f"pip install '{each}'")
            continue
        if each.specifier.contains(found, prereleases=True):
            yield Check(each.name, "ok", found)
        else:
            yield Check(each.name, "fail", found, f"pip install '{each}'")


def _shared_memory() -> Check:
    folder = Path("/dev/shm")
    if not folder.exists():
        return Check("shared memory", "ok", "this system has no /dev/shm")
    size = shutil.disk_usage(folder).total
    found = f"{size / GIB:.1f} GiB"
    if size < LEAST_SHM:
        return Check("shared memory", "warn", found, "in a container: --shm-size=2g")
    return Check("shared memory", "ok", found)


def _gpus() -> Check:
    """The driver's count of GPUs, and torch's."""
    if shutil.which("nvidia-smi") is None:
        return Check("gpus", "ok", "none (there is no nvidia-smi)")
    listed = _ask("nvidia-smi", "-L").splitlines()
    names = [line for line in listed if line.startswith("GPU ")]
    seen = _ask(sys.executable, "-c", COUNT_GPUS).strip()
    if seen == str(len(names)):
        return Check("gpus", "ok", f"{seen}: {names[0].partition(' (')[0]}" if names else "none")
    found = f"nvidia-smi lists {len(names)}, torch sees {seen or 'none'}"
    return Check("gpus", "warn", found, "install a torch for this driver; see CUDA_VISIBLE_DEVICES")


def _ask(*command: str) -> str:
    """What a command prints; nothing if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _of_home(home: Home) -> Iterator[Check]:
    """The folder, the journal in it, and sweeps that nobody drives any more."""
    remedy = "set HPOSVC_HOME to a folder on a local disk that you can write to"
    try:
        home.path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home.path):
            free = shutil.disk_usage(home.path).free
    except OSError as error:
        yield Check("home", "fail", f"{home.path}: {error.strerror}", remedy)
        return
    found = f"{home.path}, {free / GIB:.1f} GiB free"
    if free < LEAST_DISK:
        yield Check("home", "warn", found, "make room: checkpoints go there")
    else:
        yield Check("home", "ok", found)
    try:
        sweeps = Sweeps.open(home.path)
    except StoreError as error:
        remedy = "see HPOSVC_DB and HPOSVC_DB_FILE; without them the journal is a file of the home"
        yield Check("journal", "fail", str(error), remedy)
        return
    yield Check("journal", "ok", str(sweeps.journal.store))
    yield from _strays(sweeps)


def _strays(sweeps: Sweeps) -> Iterator[Check]:
    for row in sweeps.journal.sweeps():
        if driver_state(sweeps.journal.store, row.id) == "dead":
            remedy = f"hposvc resume {row.id}, or hposvc stop {row.id}"
            yield Check("sweep", "warn", f"{row.id}: its driver died", remedy)


def _mlflow(home: Home) -> Check:
    scheme = urlsplit(home.tracking_uri).scheme
    shown = hidden(home.tracking_uri)
    look = {"http": _get, "https": _get, "sqlite": _open}.get(scheme)
    if look is None:
        return Check("mlflow", "ok", f"{shown} (not looked into)")
    try:
        look(home.tracking_uri)
    except (OSError, HTTPException, sqlite3.Error, ValueError) as error:
        remedy = "start the server, or unset MLFLOW_TRACKING_URI to use a file of the home"
        return Check("mlflow", "fail", f"{shown}: {error}", remedy)
    return Check("mlflow", "ok", shown)


def _get(uri: str) -> None:
    """Hear from a server; that it wants a password is an answer."""
    place = urlsplit(uri)._replace(netloc=urlsplit(uri).netloc.rpartition("@")[2]).geturl()
    try:
        with urllib.request.urlopen(f"{place.rstrip('/')}/health", timeout=ANSWER_S):
            pass
    except HTTPError as error:
        if error.code not in (401, 403):
            raise


def _open(uri: str) -> None:
    file = Path(make_url(uri).database or "")
    if file.exists():
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
            connection.execute("select count(*) from sqlite_master")


def _ray(home: Home, deep: bool, given: str | None) -> Iterator[Check]:
    folder = home.path / "ray"
    address = given or health.running(folder)
    if address is None and not deep:
        yield Check("ray", "ok", "none runs; a sweep starts one (--deep tries it)")
        return
    remedy = "check its address and its token" if given else "see the log in HPOSVC_HOME/ray"
    yield from examine_cluster(home, address, deep, remedy)


def examine_cluster(home: Home, address: str | None, deep: bool, remedy: str) -> Iterator[Check]:
    """Whether a cluster works, and what its nodes are like.

    Args:
        address: None: start one.
        deep: probe every node.
        remedy: for one that does not answer.
    """
    folder, where = home.path / "ray", address or "local"
    answer = health.ask_nodes(where, folder, home.path) if deep else health.ask(where, folder)
    name = address or "one of this machine's own"
    if answer.works:
        yield Check("ray", "ok", f"{name}: {answer.text}")
    else:
        yield Check("ray", "fail", f"{name}: {answer.text}", remedy)
    for node in answer.nodes:
        yield from _of_node(node)


def _of_node(node: Fitness) -> Iterator[Check]:
    """What a node said of itself, and what is amiss there."""
    name = f"node {node.name}"
    if not node.troubles:
        yield Check(name, "ok", node.text)
    for trouble in node.troubles:
        yield Check(name, "fail" if trouble.fatal else "warn", trouble.text, trouble.remedy)
