"""An MLflow server and a Postgres of a round's own, which can be killed and come back."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import postgres_server
from terminal import until


class Server(Protocol):
    """Something that a sweep needs, and that can go."""

    def up(self) -> None:
        """Start it."""

    def down(self) -> None:
        """SIGKILL it."""


@dataclass
class Tracking:
    """MLflow's server on a port; its database outlives it."""

    folder: Path
    port: int = field(default_factory=lambda: free_port())
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def up(self) -> None:
        """Start it, unless it runs; returns when it answers."""
        if self.process is not None:
            return
        command = [
            *(sys.executable, "-m", "mlflow", "server", "--workers=1"),
            *("--host=127.0.0.1", f"--port={self.port}"),
            f"--backend-store-uri=sqlite:///{self.folder}/mlflow.db",
            f"--artifacts-destination={self.folder}",
        ]
        # Its job runner starts nine more processes.
        environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, env=environment
            )
        until(self._answers, "MLflow's server answers")

    def down(self) -> None:
        """SIGKILL it."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=5):
                return True
        except OSError:
            return False


@dataclass
class Postgres:
    """A server on a socket in a folder, with an empty database."""

    folder: Path
    url: str

    def up(self) -> None:
        """Start it again; it recovers what it had promised."""
        postgres_server.go_on(str(self.folder))

    def down(self) -> None:
        """SIGKILL it; its children end when they notice."""
        pid = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{pid}").exists(), "Postgres is gone")


@contextmanager
def tracking(folder: Path) -> Iterator[Tracking]:
    """A server that runs."""
    server = Tracking(folder)
    try:
        server.up()
        yield server
    finally:
        server.down()


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A server that runs."""
    with postgres_server.start() as folder:
        yield Postgres(Path(folder), postgres_server.create_database(folder, "chaos"))


def has_postgres() -> bool:
    """Whether there are programs to start one."""
    try:
        return postgres_server.find_programs().is_dir()
    except postgres_server.Missing:
        return False


def free_port() -> int:
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        return int(asking.getsockname()[1])
