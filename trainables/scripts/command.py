"""Carry out an order by a program that knows nothing of us: a fresh process an order.

Its metrics come over `hposvc.report` or a pattern on its output; what lies in
HPOSVC_CHECKPOINT_DIR when a step is reported is that step's checkpoint, HPOSVC_RESTORE_DIR is
where it goes on from. A stop is SIGTERM to its process group (one that was told by its report may
leave by itself first), and after the grace SIGKILL; nothing that it started outlives it.
"""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainables.checkpoints.checkpoint import SCRATCH
from trainables.scripts.endings import CommandFailed
from trainables.scripts.inbox import Inbox
from trainables.scripts.rendering import render
from trainables.scripts.rendezvous import Seat
from trainables.scripts.running import Peers, Run
from trainables.worker import Params, Worker

PYTHONS = ("python", "python3")  # the one that runs hposvc
OF_A_RANK = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")  # no node has these
OF_AN_OUTER_SWEEP = ("HPOSVC_RESTORE_DIR",)


@dataclass(frozen=True)
class Command:
    """How a program is started, and how its metrics are found."""

    items: Sequence[str]
    launch: Literal["rank", "node"]
    collect: str | None  # a pattern on standard output; None: hposvc.report
    grace_s: float
    limited: tuple[str, ...] = ()  # metrics with a limit, for `collect` to wait for

    def train(self, worker: Worker, params: Params, seat: Seat, peers: Peers | None) -> None:
        """Start the program, unless another rank of the node does, and see it to its end.

        Raises:
            CommandFailed: it exited with an error, reported none or wrong metrics, or the like.
            CommandLost: it was ended by somebody else.
        """
        if self.launch == "node" and not seat.first_of_node:
            return
        several = len(seat.berths if self.launch == "rank" else seat.nodes) > 1
        run = Run(self.collect, self.grace_s, worker, peers if several else None, self.limited)
        given = worker.checkpoints / SCRATCH / f"{worker.trial}-{worker.order}-given"
        try:
            found = _variables(worker, given) | self._seated(seat)
            given.mkdir(parents=True, exist_ok=True)
            with closing(Inbox(run.happened.put)) as inbox:
                found |= inbox.variable
                run.go(_program(self.items, params, found), self._environment(found), given)
        except Exception:  # whatever it was: the others would wait for this rank
            if run.peers is not None:
                run.peers.lose()
            raise
        finally:
            if worker.rank == 0:
                shutil.rmtree(given, ignore_errors=True)

    def _seated(self, seat: Seat) -> dict[str, str]:
        return seat.for_rank if self.launch == "rank" else seat.for_node

    def _environment(self, found: Mapping[str, str]) -> dict[str, str]:
        """The program's: this process's, and what was found for it."""
        hidden = (*OF_AN_OUTER_SWEEP, *(OF_A_RANK if self.launch == "node" else ()))
        inherited = {name: text for name, text in os.environ.items() if name not in hidden}
        return {**inherited, **findable(inherited), "PYTHONUNBUFFERED": "1", **found}


def _variables(worker: Worker, given: Path) -> dict[str, str]:
    start = worker.restore()
    restored = {} if start is None else {"HPOSVC_RESTORE_DIR": f"{start}"}
    return {
        "HPOSVC_CHECKPOINT_DIR": f"{given.absolute()}",
        "HPOSVC_FIRST": f"{worker.first}",
        "HPOSVC_UNTIL": f"{worker.until}",
        "HPOSVC_TOTAL": f"{worker.total}",
        "HPOSVC_SEED": f"{worker.seed}",
        "HPOSVC_TRIAL": worker.trial,
        **restored,
    }


def _program(items: Sequence[str], params: Params, found: Mapping[str, str]) -> list[str]:
    program = render(items, params, found)
    if program and program[0] in PYTHONS:
        program[0] = sys.executable
    if not program:
        raise CommandFailed(f"command: of {list(items)} nothing is left for these parameters")
    return program


def findable(inherited: Mapping[str, str]) -> dict[str, str]:
    """Paths on which this Python's torchrun and such come first, and `import hposvc` works."""
    programs = [str(Path(sys.executable).parent), inherited.get("PATH", os.defpath)]
    ours = Path(__file__).parents[2]
    installed = ours.name in ("site-packages", "dist-packages")
    modules = [inherited.get("PYTHONPATH", ""), "" if installed else str(ours)]
    return {
        "PATH": os.pathsep.join(programs),
        "PYTHONPATH": os.pathsep.join(filter(None, modules)),
    }
