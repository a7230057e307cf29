"""A Slurm cluster of several nodes on this machine: munged, slurmctld, and a slurmd per node.

Debian's slurm-wlm and munge are enough (22.05: `slurmd -N NAME` runs one of several nodes). All
files are in one folder, all ports are free ones on loopback, and all daemons end with the context.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from waiting import until

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun")
MISSING = [
    name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None
]
WHY_NOT = f"no {', '.join(MISSING)}: apt-get install slurm-wlm munge" if MISSING else ""
NODES = ("node1", "node2", "node3")
PATIENCE_S = 120.0

CONFIG = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=2,sched_min_interval=100000,requeue_delay=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=20
MinJobAge=3600
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=node[1-3] NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]},{ports[2]},{ports[3]} \
CPUs=2 RealMemory=1000
PartitionName=low Nodes=node[1-3] Default=YES PriorityTier=1 PreemptMode=REQUEUE
PartitionName=high Nodes=node[1-3] PriorityTier=10 PreemptMode=OFF
"""


@dataclass(frozen=True)
class SlurmCluster:
    """A running cluster, and the environment in which its commands find it."""

    folder: Path
    environment: dict[str, str]

    def run(self, *command: str) -> str:
        """Return what a command of Slurm's prints."""
        result = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}{self.logs()}"
        return result.stdout.strip()

    def submit(self, script: Path, *options: str) -> str:
        """Submit a script, and return the number of its job."""
        return self.run("sbatch", "--parsable", *options, f"{script}")

    def states(self, job: str) -> dict[str, str]:
        """Return the state of each task of an array, or of a job, by its number."""
        lines = self.run("squeue", "-h", "-t", "all", "-r", "-j", job, "-o", "%i %T").splitlines()
        return dict(line.split() for line in lines)

    def logs(self) -> str:
        """Return the ends of the daemons' logs."""
        files = sorted(self.folder.glob("*.log"))
        return "".join(f"\n== {file.name}\n{file.read_text()[-1500:]}" for file in files)


@contextmanager
def slurm_cluster(**variables: str) -> Iterator[SlurmCluster]:
    """Start a cluster with files in a folder of its own; kill it at the end.

    Args:
        variables: of the environment of its commands, which its jobs inherit.
    """
    folder = Path(tempfile.mkdtemp(prefix="hposvc-slurm-", dir="/tmp"))  # sockets: a short path
    folder.chmod(0o755)
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    config = folder / "slurm.conf"
    user = os.environ.get("USER") or "root"
    config.write_text(CONFIG.format(folder=folder, user=user, ports=_free_ports(4)))
    path = f"{os.environ['PATH']}:/usr/sbin"
    environment = {**os.environ, "PATH": path, "SLURM_CONF": f"{config}", **variables}
    cluster = SlurmCluster(folder, environment)
    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    daemons = [
        ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *munge],
        ["slurmctld", "-D", "-c", "-f", f"{config}"],
        *(["slurmd", "-D", "-N", node, "-f", f"{config}"] for node in NODES),
    ]
    processes = []
    try:
        for daemon in daemons:
            processes.append(_start(daemon, cluster))
            if daemon[0] == "munged":
                until((folder / "munge.socket").exists, cluster.logs)
        until(lambda: _idle_nodes(cluster) == len(NODES), cluster.logs)
        yield cluster
    finally:
        with suppress(AssertionError, subprocess.TimeoutExpired):
            cluster.run("scancel", "--user", user)
            until(lambda: cluster.run("squeue", "-h") == "", cluster.logs)
        for process in reversed(processes):
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _start(command: list[str], cluster: SlurmCluster) -> "subprocess.Popen[bytes]":
    name = command[command.index("-N") + 1] if "-N" in command else command[0]
    with (cluster.folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            command, env=cluster.environment, stdout=log, stderr=subprocess.STDOUT
        )


def _idle_nodes(cluster: SlurmCluster) -> int:
    asked = subprocess.run(
        ["sinfo", "-h", "-p", "low", "-t", "idle", "-o", "%D"],
        env=cluster.environment,
        capture_output=True,
        text=True,
    )
    return sum(map(int, asked.stdout.split()))


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports
