"""A person's terminal on one home: starts commands, sees how far a sweep is, finds processes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
from ruamel.yaml import YAML

from hposvc.journal.database import Store
from hposvc.journal.journal import Journal

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# Of whoever runs the tests: commands are not to reach another journal, MLflow or Ray.
OTHERS = ("HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS", "RAY_AUTH_MODE")
OTHERS += ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
ROUNDS = int(os.environ.get("HPOSVC_CHAOS_ROUNDS", "2"))  # kills of the driver; `make kills`: more
LONG = "HPOSVC_CHAOS_ROUNDS" in os.environ  # hours, on a machine that others may use too
DEADLINE_S = 600.0 if LONG else 480.0  # for what takes seconds on an idle machine
GONE_S = 180.0  # for what a driver that ended left behind
POLL_S = 0.05  # to look through all processes, or a journal, takes some 10 ms of a core


def until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait for a condition.

    Raises:
        TimeoutError: it did not come.
    """
    deadline = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {deadline_s:.0f} s still not: {what}")
        time.sleep(POLL_S)


def pause(seconds: float) -> None:
    """Let a random while pass: what is killed is to be amid something."""
    moment = time.monotonic() + seconds
    until(lambda: time.monotonic() >= moment, "the moment")


def kill_node(pid: int) -> None:
    """SIGKILL a node with all of its processes: what the loss of a machine looks like."""
    node = psutil.Process(pid)
    for process in (*node.children(recursive=True), node):
        with suppress(psutil.NoSuchProcess):
            process.kill()


@dataclass(frozen=True)
class Command:
    """A command under way; its output goes to files, so that a killed one blocks nobody."""

    process: subprocess.Popen[bytes]
    stdout: Path
    stderr: Path

    def end(self) -> tuple[int, str]:
        """Wait for its end: exit code and what it said on stderr."""
        code = self.process.wait(DEADLINE_S)
        return code, self.stderr.read_text()

    def kill(self) -> None:
        """SIGKILL: the command and its driver, none of the driver's children."""
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def kill_driver(self) -> None:
        """SIGKILL: the driver alone; the command starts another one."""
        for driver in psutil.Process(self.process.pid).children():
            driver.kill()


@dataclass(frozen=True)
class Terminal:
    """A home, and commands on it; the trainables of this folder can be imported by them."""

    home: Path
    folder: Path = ROOT  # in which commands run
    variables: dict[str, str] = field(default_factory=dict)  # of their environment

    @cached_property
    def journal(self) -> Journal:
        return Journal(Store(f"sqlite:///{self.home / 'hposvc.db'}"))

    def run(self, spec: Mapping[str, Any], sweep: str) -> Command:
        """Begin to run a sweep."""
        file = self.home / f"{sweep}.yaml"
        YAML().dump(spec, file)
        return self.start("run", str(file), "--id", sweep)

    def start(self, *arguments: str) -> Command:
        """Begin `hposvc ARGUMENTS`."""
        return self.start_python("-m", "hposvc", *arguments)

    def start_python(self, *arguments: str) -> Command:
        """Begin `python ARGUMENTS`, in a session of its own, as a terminal gives one."""
        folder = self.home / "outputs"
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("*.err")))
        out, err = folder / f"{number}.out", folder / f"{number}.err"
        environment = {name: value for name, value in os.environ.items() if name not in OTHERS}
        environment |= {"HPOSVC_HOME": str(self.home), "OMP_NUM_THREADS": "1"}
        environment |= {"PYTHONPATH": f"{HERE}{os.pathsep}{ROOT}", **self.variables}
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                env=environment,
                cwd=self.folder,
            )
        return Command(process, out, err)

    def ask(self, *arguments: str) -> Any:
        """What `hposvc ARGUMENTS -o json` answers."""
        command = self.start(*arguments, "-o", "json")
        code, said = command.end()
        assert code == 0, said
        return json.loads(command.stdout.read_text())

    def reach(self, sweep: str, seq: int, command: Command) -> bool:
        """Wait until the journal holds so many events; False if the command ended before."""
        journal = self.journal
        until(
            lambda: journal.last(sweep) >= seq or command.process.poll() is not None,
            f"event {seq} of {sweep}; {command.stderr.read_text()}",
        )
        return command.process.poll() is None

    def processes(self) -> list[psutil.Process]:
        """All that live and were started for this home, by whomever."""
        return [process for process in psutil.process_iter() if _belongs(process, str(self.home))]

    def ranks(self) -> list[psutil.Process]:
        """The processes that train."""
        return [process for process in self.processes() if "ray::" in title(process)]

    def keeper(self) -> psutil.Process:
        """The process that holds this home's Ray."""
        return psutil.Process(json.loads((self.home / "ray" / "address.json").read_text())["pid"])

    def sweep_up(self) -> None:
        """End all that a failed test may have left."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):  # the others' end may have been its own
                process.kill()


def title(process: psutil.Process) -> str:
    """What it calls itself, as Ray's processes do; empty once it is gone."""
    try:
        return "".join(process.cmdline()[:1])
    except psutil.Error:
        return ""


def _belongs(process: psutil.Process, home: str) -> bool:
    try:
        ours = process.environ().get("HPOSVC_HOME") == home
        return ours and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
