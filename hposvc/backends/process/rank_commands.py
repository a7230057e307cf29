"""Start the ranks of a group: as processes of this machine, or by srun on a Slurm job's nodes."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from hposvc.errors import OutOfReach

RANK = (sys.executable, "-m", "hposvc.backends.process.rank_process")
LOOPBACK = "127.0.0.1"
ANY = "0.0.0.0"  # ranks on other nodes call; they authenticate by the slot's key


class Launcher(Protocol):
    """A way to start the processes of a group's ranks."""

    def host(self) -> str:
        """Return the address at which ranks reach this process."""

    def commands(self, world_size: int) -> list[tuple[str, ...]]:
        """Return the commands that start all ranks of a group."""


@dataclass(frozen=True)
class LocalLauncher:
    """Starts each rank as a process of this machine."""

    def host(self) -> str:
        return LOOPBACK

    def commands(self, world_size: int) -> list[tuple[str, ...]]:
        return [(*RANK, f"{rank}", f"{world_size}") for rank in range(world_size)]


@dataclass(frozen=True)
class SlurmLauncher:
    """Starts all ranks by one srun, on the nodes of the Slurm job that this process runs in."""

    tasks: int
    nodes: int
    cpus_per_task: str | None  # sbatch's, which srun no longer takes over by itself (Slurm 22.05)

    def host(self) -> str:
        return LOOPBACK if self.nodes == 1 else ANY

    def commands(self, world_size: int) -> list[tuple[str, ...]]:
        if world_size > self.tasks:
            raise OutOfReach(
                f"a trial has {world_size} ranks (resources.workers), and this Slurm "
                f"job has {self.tasks} tasks",
                fix=f"submit it with --ntasks={world_size}",
            )
        cpus = () if self.cpus_per_task is None else (f"--cpus-per-task={self.cpus_per_task}",)
        # --overlap: the agent may itself be a step of the job.
        step = ("srun", f"--ntasks={world_size}", *cpus, "--overlap", "--kill-on-bad-exit")
        return [(*step, "--unbuffered", *RANK)]


def launcher_here(variables: Mapping[str, str]) -> Launcher:
    """Return srun if this process runs in a Slurm job with several tasks, else local processes."""
    tasks = int(variables.get("SLURM_NTASKS", "1"))
    if "SLURM_JOB_ID" not in variables or tasks == 1 or is_one_of_several(variables):
        return LocalLauncher()
    nodes = int(variables.get("SLURM_JOB_NUM_NODES", "1"))
    return SlurmLauncher(tasks, nodes, variables.get("SLURM_CPUS_PER_TASK"))


def is_one_of_several(variables: Mapping[str, str]) -> bool:
    """Return whether srun has started several agents, of which this process is one."""
    return int(variables.get("SLURM_STEP_NUM_TASKS", "1")) > 1
