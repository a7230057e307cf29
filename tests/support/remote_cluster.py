"""A cluster as on other machines: a head and a worker that see only part of this one's folders.

Each node lives in a mount namespace of its own, in which folders of this machine are hidden under
empty ones; that is what separate disks look like. Where the system permits no namespaces, the nodes
see everything, and `hides` says so.
"""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from waiting import until

from cluster.local import free_ports

# Each of pytest-xdist's workers (gw0, gw1, ...) may have such a cluster, at addresses of its own.
_NET = "127.0." + os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
HEAD, WORKER = f"{_NET}.51", f"{_NET}.52"
STARTS_S = 400.0  # for a node, which Ray gives up after 30 s
NAMESPACES = (["unshare", "-m"], ["unshare", "-rm"])  # as root, and as somebody else
HIDE = 'while [ "$1" != -- ]; do mount -t tmpfs none "$1" || exit 1; shift; done; shift; exec "$@"'


@dataclass(frozen=True)
class Remote:
    """A cluster of a head and a worker with one CPU each; the worker is labelled zone: b."""

    folder: Path
    token: str
    dashboard: str
    gcs: str
    hides: bool

    @property
    def mine(self) -> Path:
        """A folder that no node sees: the submitting machine's own disk."""
        return self.folder / "mine"

    @property
    def heads(self) -> Path:
        """A folder that the worker does not see."""
        return self.folder / "heads"

    @property
    def shared(self) -> Path:
        """A folder that all see."""
        return self.folder / "shared"

    @property
    def ray(self) -> Path:
        """Ray's own files."""
        return self.folder / "ray"

    @property
    def log(self) -> Path:
        """What the nodes print."""
        return self.folder / "nodes.log"

    def said(self) -> str:
        """Return the end of what they printed."""
        return self.log.read_text()[-3000:]

    def environment(self, home: Path) -> dict[str, str]:
        """Of a process that submits."""
        clean = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
        return {**clean, "RAY_AUTH_TOKEN": self.token, "HPOSVC_HOME": str(home)}

    def get(self, path: str) -> str:
        """What the dashboard says."""
        request = urllib.request.Request(f"{self.dashboard}{path}")
        request.add_header("Authorization", f"Bearer {self.token}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())


@contextmanager
def start() -> Iterator[Remote]:
    """Bring it up; everything of it is gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="hposvc-r-", dir="/tmp"))  # sockets want a short path
    namespace = next((words for words in NAMESPACES if _works(words)), None)
    token = secrets.token_hex(16)
    gcs, port, client, *agents = free_ports(7)
    remote = Remote(folder, token, f"http://{HEAD}:{port}", f"{HEAD}:{gcs}", namespace is not None)
    for one in (remote.mine, remote.heads, remote.shared):
        one.mkdir()
    head = ["--head", f"--node-ip-address={HEAD}", f"--port={gcs}", "--dashboard-host", HEAD]
    head += [f"--dashboard-port={port}", f"--ray-client-server-port={client}"]
    head += _agent_ports(*agents[:2])
    worker = [f"--address={remote.gcs}", f"--node-ip-address={WORKER}", "--labels=zone=b"]
    worker += _agent_ports(*agents[2:])
    nodes: list[subprocess.Popen[bytes]] = []

    def bring_up(hidden: Sequence[Path], words: Sequence[str]) -> None:
        """Start a node, and another one if it ends: Ray's do if their agents take 15 s to come."""
        wanted = _alive(remote) + 1
        nodes.append(_node(remote, namespace, hidden, words))

        def is_up() -> bool:
            if nodes[-1].poll() is not None:
                nodes.append(_node(remote, namespace, hidden, words))
            return _alive(remote) >= wanted

        until(is_up, remote.said, STARTS_S)

    try:
        bring_up([remote.mine], head)
        bring_up([remote.mine, remote.heads], worker)
        yield remote
    finally:
        for process in reversed(nodes):
            end(process)
        shutil.rmtree(folder, ignore_errors=True)


def _node(
    remote: Remote, namespace: list[str] | None, hidden: Sequence[Path], words: Sequence[str]
) -> "subprocess.Popen[bytes]":
    ray = str(Path(sys.executable).with_name("ray"))
    command = [ray, "start", "--block", *words, "--num-cpus=1", "--disable-usage-stats"]
    command += ["--object-store-memory=100000000"]
    # Of its own: of two nodes in one folder, each would delete what the other has unpacked.
    command += [f"--temp-dir={remote.ray / ('head' if '--head' in words else 'worker')}"]
    if namespace is not None:
        folders = [str(folder) for folder in hidden]
        command = [*namespace, "sh", "-c", HIDE, "sh", *folders, "--", *command]
    home = remote.shared / "head-home"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**remote.environment(home), "RAY_AUTH_MODE": "token", "PATH": path}
    environment.pop("PYTHONPATH", None)
    with remote.log.open("a") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, cwd="/", start_new_session=True
        )


def _alive(remote: Remote) -> int:
    try:
        answer = json.loads(remote.get("/api/v0/nodes"))
    except OSError:
        return 0
    return sum(node["state"] == "ALIVE" for node in answer["data"]["result"]["result"])


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process as Docker does, and kill what is left of it and its children."""
    if process.poll() is not None:
        return
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(20)
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    process.kill()
    process.wait(20)


def _works(words: list[str]) -> bool:
    command = [*words, "sh", "-c", "mount -t tmpfs none /mnt"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def _agent_ports(metrics: str, listen: str) -> list[str]:
    return [f"--metrics-export-port={metrics}", f"--dashboard-agent-listen-port={listen}"]
