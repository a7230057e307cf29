"""Carry out one order on one rank: build the trainable, run it, leave the process as it was.

Used by the ranks of a slot and, with a world of one, by whoever runs trials in-process. Without
torch, unless there is a process group to join.
"""

import os
import traceback
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from trainables import load
from trainables.checkpoints.checkpoint import CheckpointDamaged, Every, Saved
from trainables.checkpoints.room import out_of_room
from trainables.checkpoints.stores import StoreFailed
from trainables.scripts.command import Command
from trainables.scripts.endings import CommandFailed, CommandLost, out_of_memory
from trainables.scripts.rendezvous import Seat, alone
from trainables.scripts.running import Peers
from trainables.slots import hygiene
from trainables.slots.capturing import captured
from trainables.slots.preemption import TOLD
from trainables.slots.redaction import redact, redact_file
from trainables.stopping import Notice, Preempted, StopTrial
from trainables.training import Training
from trainables.worker import (
    Diverged,
    Link,
    Nan,
    Params,
    ReportError,
    TooLarge,
    Worker,
)

# Where ranks fail in several ways, the first of these is what the order came to.
# damaged: the checkpoint that it was to start from; storage: no room to write; oversize: half of a
# micro-batch may fit into memory; preempt: its place was taken from it; stalled: no rank gave a
# sign of life; collateral: a peer's or the network's fault
OutcomeKind = Literal[
    "ended",
    "damaged",
    "storage",
    "oom",
    "diverged",
    "oversize",
    "preempt",
    "user",
    "stalled",
    "collateral",
]
KINDS: tuple[OutcomeKind, ...] = get_args(OutcomeKind)
# Ray decides these for each rank: its own settings, which GPUs, how many threads.
RAYS = ("RAY_", "CUDA_VISIBLE_DEVICES", "NVIDIA_", "HIP_", "ROCR_", "ASCEND_", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class Inherited:
    """What a process of this machine takes over from the driver that it works for.

    Ray gives its processes what the one that started Ray had, who may be somebody else.
    """

    environment: Mapping[str, str] = field(repr=False)  # may hold secrets
    folder: str

    @classmethod
    def here(cls) -> "Inherited":
        """What this process has, but for what Ray decides for each rank."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(RAYS)
        }
        return cls(environment, os.getcwd())  # noqa: PTH109 - as the system has it

    def take_over(self) -> None:
        """Make it this process's own."""
        for name in [name for name in os.environ if not name.startswith(RAYS)]:
            if name not in self.environment:
                del os.environ[name]
        os.environ.update(self.environment)
        os.chdir(self.folder)


@dataclass(frozen=True)
class Place:
    """What stays the same from order to order for the ranks of a slot."""

    trainable: str  # a reference, see load.py; empty where there is a command
    training: Training
    metrics: tuple[str, ...]  # of the sweep
    total: int  # the last step of a whole trial
    every: Every  # steps between checkpoints, or a period
    seed: int  # of the sweep
    folder: Path  # of the sweep: checkpoints/ and logs/ are in it
    world_size: int = 1
    gpu: bool = False
    storage: str | None = None  # URL of the checkpoints; None: they are in the folder
    stall_s: float = 600.0  # without a sign of life, until an order is said to hang
    path: tuple[str, ...] = ()  # folders that the driver imports from
    inherited: Inherited | None = None  # from the driver; None: what the node has
    command: Command | None = None  # a program in place of the trainable
    nan: Nan = "stop"  # as failure.nan says
    variables: Mapping[str, str] = field(default_factory=dict)  # of every rank's environment
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # more of them


@dataclass(frozen=True)
class Assignment:
    """An order as the ranks get it."""

    order: int
    trial: str
    params: Params
    start: Saved | None
    first: int
    until: int
    milestones: tuple[int, ...]
    environment: dict[str, str] = field(default_factory=dict)  # rank 0 only
    seed_of: str | None = None  # the trial whose random numbers it draws; None: its own
    shrink: int = 0  # how often the trial's micro-batches were halved


@dataclass(frozen=True)
class Outcome:
    """How an order went on one rank."""

    order: int
    kind: OutcomeKind
    message: str = ""
    residues: tuple[str, ...] = ()  # what it left behind in the process


@dataclass(frozen=True)
class Company:
    """What a rank shares with the others during an order."""

    seat: Seat
    group: AbstractContextManager[None] = field(default_factory=nullcontext)  # the process group
    peers: Peers | None = None  # None: there are no others
    notice: Notice = field(default_factory=Notice)  # that the rank's process is to end soon


def carry_out(
    place: Place, task: Assignment, rank: int, link: Link, company: Company | None = None
) -> Outcome:
    """Run the trainable for this order, within a process group if there is one.

    Errors of its code are part of the outcome.

    Args:
        company: None: there is this rank only.
    """
    if company is None:
        with alone() as seat:
            return carry_out(place, task, rank, link, Company(seat))
    kind: OutcomeKind
    before = hygiene.baseline()
    os.environ.update(company.seat.variables)
    if rank == 0:
        os.environ.update(task.environment)
    try:
        with company.group:
            kind, message = _train(place, task, rank, link, company)
    except CheckpointDamaged as error:
        # Only of the one that it started from is the controller to be told: it forgets that one.
        started = task.start is not None and error.file.startswith(f"{task.start.path}/")
        kind, message = "damaged" if started else "collateral", f"{error}"
    except CommandLost as error:  # its output is in the log
        kind, message = "collateral", f"{error}"
    except CommandFailed as error:
        kind, message = error.kind, f"{error}"
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code may raise anything
        with suppress(OSError):  # no room for the log, perhaps
            traceback.print_exc()
        kind = kind_of(error)
        message = f"{error}" if kind == "diverged" else traceback.format_exc()
    residues = hygiene.restore(before)
    residues += hygiene.difference(before, hygiene.baseline())
    residues += [f"it {TOLD}"] * company.notice.given
    return Outcome(task.order, kind, redact(message, place.secrets.values()), tuple(residues))


def _train(
    place: Place, task: Assignment, rank: int, link: Link, company: Company
) -> tuple[Literal["ended", "preempt"], str]:
    worker = worker_of(place, task, rank, link)
    worker.notice = company.notice
    try:
        if place.command is not None:
            place.command.train(worker, task.params, company.seat, company.peers)
            return "ended", ""
        trainable = load.resolve(place.trainable)
        if place.nan != "stop" and not load.heeds_nan(trainable):
            message = f"failure.nan is {place.nan}, but {place.trainable} {load.ITS_OWN}"
            raise load.LoadError(message)
        load.bind(trainable, task.params)(worker)
    except Preempted as taken:
        return "preempt", taken.reason
    except StopTrial:
        pass
    finally:
        worker.close()
    if worker.reported is None:
        raise ReportError(
            "train returned without a report; call worker.report(step, {...}), "
            "or hposvc.report({...}) where there is no worker"
        )
    return "ended", ""


def worker_of(place: Place, task: Assignment, rank: int, link: Link) -> Worker:
    """What a rank's trainable is given for an order."""
    number = int("".join(filter(str.isdigit, task.seed_of or task.trial)) or 0)
    return Worker(
        rank=rank,
        world_size=place.world_size,
        first=task.first,
        until=task.until,
        total=place.total,
        seed=place.seed * 1_000_003 + number,
        training=load.training_of(place.training, task.params),
        params=task.params,
        trial=task.trial,
        order=task.order,
        metrics=place.metrics,
        start=task.start,
        checkpoints=place.folder / "checkpoints",
        every=place.every,
        milestones=task.milestones,
        link=link,
        gpu=place.gpu,
        nan=place.nan,
        shrink=task.shrink,
        storage=place.storage,
    )


def kind_of(error: BaseException) -> OutcomeKind:
    """What an error of the user's code comes from: it, too little memory or room, another rank."""
    if isinstance(error, Diverged):
        return "diverged"
    if isinstance(error, TooLarge):  # before what it was raised from
        return "oversize"
    if out_of_memory(error):
        return "oom"
    if out_of_room(error):
        return "storage"
    if isinstance(error, StoreFailed):
        return "collateral"
    return "collateral" if _from_peer(error) else "user"


def _from_peer(error: BaseException) -> bool:
    """Whether an error only says that another rank is gone."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text = str(error)
    return "DistError" in names or "PeerLost" in names or "gloo" in text or "NCCL" in text


def log_file(folder: Path, trial: str, order: int, rank: int) -> Path:
    """Where a rank's output during an order goes."""
    return folder / "logs" / trial / f"{order}-{rank}.log"


def import_trainable(place: Place, file: Path) -> None:
    """Import what a slot needs before its first order; what that prints goes to a file.

    Raises:
        LoadError: in place of an error that tells a secret. All others pass as they are.
    """
    secrets = place.secrets.values()
    try:
        with captured(file):
            load.resolve(place.trainable)
    except Exception as error:
        # Ray keeps and shows the whole of it, with what it came from.
        whole = traceback.format_exc()
        if redact(whole, secrets) == whole:
            raise
        said = redact(f"{type(error).__name__}: {error}", secrets)
        raise load.LoadError(f"{place.trainable} fails when it is loaded: {said}") from None
    finally:
        redact_file(file, secrets)
        if file.exists() and file.stat().st_size == 0:
            file.unlink()
