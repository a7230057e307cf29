"""Carry out an order by running a user's program, in a fresh process for each order.

Metrics come from `hposvc.report` or from a pattern on the program's output. The content of
HPOSVC_CHECKPOINT_DIR when a step is reported is that step's checkpoint; HPOSVC_RESTORE_DIR holds
the checkpoint to resume from. The file of WANDB_SWEEP_PARAM_PATH gives the parameters to
wandb.init, as W&B's own agent does, so that a script that reads wandb.config gets them. To stop a
program, its process group gets SIGTERM (a program told to stop by its report may first exit by
itself), and SIGKILL after the grace period. No process that the program started outlives it.
"""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainables.programs.arguments import PORT, TORCHRUNS, names, render
from trainables.programs.exit_causes import CommandFailed
from trainables.programs.rendezvous import RankEnv
from trainables.programs.report_socket import ReportServer
from trainables.programs.running import Peers, ProgramRun
from trainables.programs.server import Server
from trainables.programs.wandb_config import as_yaml
from trainables.storage.checkpoint import SCRATCH
from trainables.worker import Params, Worker

PYTHONS = ("python", "python3")  # names replaced by the Python that runs hposvc
OF_A_RANK = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")  # hidden if a program runs once per node
OF_AN_OUTER_SWEEP = ("HPOSVC_RESTORE_DIR", "HPOSVC_UNTIL", "HPOSVC_TOTAL")
WANDB_CONFIG = "WANDB_SWEEP_PARAM_PATH"  # the file that W&B's own agent gives a run


@dataclass(frozen=True)
class Command:
    """The command of a sweep: how to start its program, and how to find the metrics."""

    items: Sequence[str]
    launch: Literal["rank", "node"]
    collect: str | None  # a pattern on standard output; None: hposvc.report
    grace_s: float
    limited: tuple[str, ...] = ()  # metrics with a limit, for `collect` to wait for
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)  # of one order alone
    output: int = 2  # the descriptor that takes the program's output
    server: Server | None = None  # that the program loads; None: it loads none
    price: float | None = None  # of an hour of the server; None: unknown

    def train(self, worker: Worker, params: Params, rank_env: RankEnv, peers: Peers | None) -> None:
        """Run the program to its end, unless another rank of the node does.

        Raises:
            CommandFailed: the program exited with an error, reported no or wrong metrics, or the
                like.
            CommandLost: the program was ended by somebody else.
        """
        if self.launch == "node" and not rank_env.first_of_node:
            return
        several = len(rank_env.addresses if self.launch == "rank" else rank_env.nodes) > 1
        peers = peers if several else None
        run = ProgramRun(self.collect, self.grace_s, worker, peers, self.limited, self.price)
        scratch = worker.checkpoints / SCRATCH
        checkpoint_dir = scratch / f"{worker.trial}-{worker.order}-given"
        config_dir = scratch / f"{worker.trial}-{worker.order}-config"
        try:
            variables = _variables(worker, checkpoint_dir) | self._torchrun_variables(rank_env)
            checkpoint_dir.mkdir(parents=True, exist_ok=True)
            config_dir.mkdir(parents=True, exist_ok=True)
            config = config_dir / f"wandb-{worker.rank}.yaml"
            config.write_text(as_yaml(params), encoding="utf-8")
            variables[WANDB_CONFIG] = f"{config.absolute()}"
            with ExitStack() as stack:
                if self.server is not None:
                    run.server = stack.enter_context(
                        self.server.up(self._start, worker, self.output)
                    )
                    variables[PORT] = run.server.port
                reports = stack.enter_context(closing(ReportServer(run.events.put)))
                variables |= reports.variable
                run.go(
                    _program(self.items, params, variables),
                    self._environment(variables),
                    checkpoint_dir,
                    self.output,
                )
        except Exception:  # otherwise the other ranks would wait for this one
            if run.peers is not None:
                run.peers.lose()
            raise
        finally:
            if worker.rank == 0:
                shutil.rmtree(checkpoint_dir, ignore_errors=True)
                shutil.rmtree(config_dir, ignore_errors=True)

    def _start(
        self, items: Sequence[str], params: Params, variables: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """Return a server's program, and its environment."""
        return _program(items, params, variables), self._environment(variables)

    def _torchrun_variables(self, rank_env: RankEnv) -> dict[str, str]:
        if self.launch == "node":
            return rank_env.for_node
        asked = any(name in TORCHRUNS for item in self.items for name in names(item))
        return rank_env.for_rank if asked or rank_env.has_peers else {}

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the program's environment: this process's, with the given variables."""
        hidden = (*OF_AN_OUTER_SWEEP, *(OF_A_RANK if self.launch == "node" else ()))
        inherited = {name: text for name, text in os.environ.items() if name not in hidden}
        own = {**self.environment, **variables}
        return {**inherited, **search_paths(inherited), "PYTHONUNBUFFERED": "1", **own}


def _variables(worker: Worker, checkpoint_dir: Path) -> dict[str, str]:
    start = worker.restore()
    restored = {} if start is None else {"HPOSVC_RESTORE_DIR": f"{start}"}
    if worker.until is not None and worker.total is not None:
        restored |= {"HPOSVC_UNTIL": f"{worker.until}", "HPOSVC_TOTAL": f"{worker.total}"}
    return {
        "HPOSVC_CHECKPOINT_DIR": f"{checkpoint_dir.absolute()}",
        "HPOSVC_FIRST": f"{worker.first}",
        "HPOSVC_SEED": f"{worker.seed}",
        "HPOSVC_TRIAL": worker.trial,
        **restored,
    }


def _program(items: Sequence[str], params: Params, variables: Mapping[str, str]) -> list[str]:
    program = render(items, params, variables)
    if program and program[0] in PYTHONS:
        program[0] = sys.executable
    if not program:
        raise CommandFailed(f"command: of {list(items)} nothing is left for these parameters")
    return program


def remark_on_python(command: Sequence[str]) -> str:
    """Return which Python a command means, where a shell would take another; else nothing."""
    word = re.search(r"(?:^|\s)(python3?)(?=\s|$)", " ".join(command))
    shells = shutil.which(word[1]) if word else None
    if shells is None or Path(shells).parent == Path(sys.executable).parent:
        return ""
    ours = f"command: python is {sys.executable}, which runs hposvc"
    return f"{ours}; your shell's is {shells}: to use that, write its path"


def search_paths(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return PATH and PYTHONPATH that find this Python's programs first, and hposvc itself."""
    programs = [str(Path(sys.executable).parent), inherited.get("PATH", os.defpath)]
    ours = Path(__file__).parents[2]
    installed = ours.name in ("site-packages", "dist-packages")
    modules = [inherited.get("PYTHONPATH", ""), "" if installed else str(ours)]
    return {
        "PATH": os.pathsep.join(programs),
        "PYTHONPATH": os.pathsep.join(filter(None, modules)),
    }
