"""Carry out one order on one rank: build the trainable, run it, restore the process.

The ranks of a slot use this module, and so does, with a world of one, whatever runs trials in its
own process. It does not import torch unless there is a process group to join.
"""

import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, get_args

from trainables import load
from trainables.errors import (
    causes,
    encodable,
    is_disk_full,
    is_storage_fault,
    out_of_memory,
    shortened,
    text_of,
    traceback_of,
)
from trainables.limits import Energy, Flag, Limits, LongText, Text
from trainables.link import AboutOrder
from trainables.monitoring import energy
from trainables.order import Order
from trainables.programs.command import Command
from trainables.programs.exit_causes import CommandFailed, CommandLost, taken_by_others
from trainables.programs.rendezvous import RankEnv, single_rank
from trainables.programs.running import Peers
from trainables.programs.wandb_run import finish_run, open_run
from trainables.report_hints import imported_here, ray_train_hint, report_hint
from trainables.runtime import process_state
from trainables.runtime.output import redirect_output
from trainables.runtime.redaction import redact
from trainables.runtime.variants import CodeVariants
from trainables.stop_signals import SIGTERM_TEXT, How, Notice, Preempted, StopTrial
from trainables.storage.checkpoint import CheckpointDamaged, Every
from trainables.storage.stores import StoreFailed
from trainables.training import Training
from trainables.worker import Diverged, Link, Nan, ReportError, Sharing, TooLarge, Worker

# If ranks fail in several ways, the kind that comes first here is the order's outcome.
# damaged: the checkpoint to start from is damaged; storage: the disk is full; oversize: half of a
# micro-batch may fit into memory; preempt: the order's resources were taken away; stalled: no rank
# gave a sign of life; collateral: a peer's or the network's fault; infra: a process was lost
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
    "infra",
]
KINDS: tuple[OutcomeKind, ...] = get_args(OutcomeKind)
THREADS = "OMP_NUM_THREADS"
# Variables that Ray sets for each rank: its own settings, the GPUs, the number of threads.
SET_BY_RAY = (
    "RAY_",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_",
    "HIP_",
    "ROCR_",
    "ASCEND_",
    THREADS,
)
GLOO = re.compile(r"\[\S*gloo/\S+\.(cc|h):\d+\]")  # how gloo begins its errors


class TrainableExited(Exception):
    """The trainable called sys.exit with a status that means an error."""


@dataclass(frozen=True)
class Inherited:
    """The driver's environment and working folder, for the processes that work for it.

    Ray gives its processes the environment of the process that started Ray, which may belong to
    another user.
    """

    environment: Mapping[str, str] = field(repr=False)  # may hold secrets
    folder: str

    @classmethod
    def here(cls) -> "Inherited":
        """Return this process's environment, without the variables that Ray sets for each rank.

        Ray sets the number of threads only where the user did not.
        """
        environment = {
            name: value
            for name, value in os.environ.items()
            if name == THREADS or not name.startswith(SET_BY_RAY)
        }
        return cls(environment, os.getcwd())  # noqa: PTH109 - as the system has it

    def take_over(self) -> None:
        """Replace this process's environment and working folder by the driver's."""
        for name in [name for name in os.environ if not name.startswith(SET_BY_RAY)]:
            if name not in self.environment:
                del os.environ[name]
        os.environ.update(self.environment)
        with suppress(OSError):  # the folder has been deleted since
            os.chdir(self.folder)


@dataclass(frozen=True)
class SlotConfig:
    """The settings of a slot's ranks, which stay the same from order to order."""

    trainable: str  # a reference, see load.py; empty if there is a command
    training: Training
    metrics: tuple[str, ...]  # of the sweep
    total: int | None  # the last step of a full trial; None: it ends when the trainable returns
    every: Every  # steps between checkpoints, or a period
    seed: int  # of the sweep
    folder: Path  # of the sweep: checkpoints/ and logs/ are in it
    world_size: int = 1
    gpu: bool = False
    gpu_share: float = 1.0  # of one GPU's memory; below 1, other processes use the rest
    storage: str | None = None  # URL of the checkpoints; None: they are in the folder
    stall_s: float = 600.0  # seconds without a sign of life after which an order counts as hanging
    path: tuple[str, ...] = ()  # folders that the driver imports from
    inherited: Inherited | None = None  # from the driver; None: keep the node's environment
    works_in: str | None = None  # the working folder, if the node has it; None: leave it as it is
    code: Mapping[str, str] = field(default_factory=dict)  # checksums, see load.Sources
    command: Command | None = None  # a program in place of the trainable
    variants: CodeVariants | None = None  # versions of the code; None: there is only one
    memory: int | None = None  # bytes of main memory that a rank may use; None: no limit
    nan: Nan = "stop"  # as failure.nan says
    unit: str = "epoch"  # of steps, as fidelity.unit says
    interval: int = 1  # steps from one report of a Task to the next
    datasets: Mapping[str, str] = field(default_factory=dict)  # functions that make them, by name
    variables: Mapping[str, str] = field(default_factory=dict)  # of every rank's environment
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # likewise, but secret
    needs_energy: bool = False  # the sweep goes by it: without a counter of it no trial can run

    @property
    def distributed(self) -> bool:
        """Whether to use torch's process groups, even with a single rank."""
        return self.world_size > 1 or self.training.traits.several_ranks

    def enter(self) -> None:
        """Change into `works_in`, unless this node has no such folder."""
        if self.works_in is not None and Path(self.works_in).is_dir():
            os.chdir(self.works_in)


@dataclass(frozen=True)
class Assignment:
    """An order on its way to the ranks, with what only they may know of it."""

    order: Order
    environment: Mapping[str, str] = field(default_factory=dict)  # rank 0 only


Texts = Annotated[tuple[Text, ...], Limits(max_length=1000)]


@dataclass(frozen=True)
class Outcome(AboutOrder):
    """How an order went, on one rank or on all of them."""

    kind: OutcomeKind
    message: LongText = ""  # of a failure, for people; the last line names the error
    leaks: Texts = ()  # changes that the order left behind in the process
    how: How = ""
    unused: Texts | None = None  # parameters that the trainable has not asked for
    warning: LongText = ""  # of its reports: a step told again, a checkpoint not asked for
    sweep_wide: Flag = False  # see `CommandFailed`
    clean: Flag = True  # all ranks let go of the order
    crashed: Flag = False  # a process of the order ended itself, by an exit status or a fault
    energy_kwh: Energy | None = None  # of the order, on all ranks; None: not measured
    type: Literal["outcome"] = "outcome"


@dataclass(frozen=True)
class RankContext:
    """The means by which a rank works with the other ranks during an order."""

    rank_env: RankEnv
    group: AbstractContextManager[object] = field(default_factory=nullcontext)  # the process group
    peers: Peers | None = None  # None: there are no others
    notice: Notice = field(default_factory=Notice)  # given when the process is to end soon
    keeps_group: Callable[[], bool] = bool  # whether to keep the process group for the next order
    sharing: Sharing | None = None  # with other orders of this process; None: there are none


def carry_out(
    config: SlotConfig,
    assignment: Assignment,
    rank: int,
    link: Link,
    context: RankContext | None = None,
) -> Outcome:
    """Run the trainable for this order, within a process group if there is one.

    Errors of the trainable's code become part of the outcome.

    Args:
        context: None if this is the only rank.
    """
    if context is None:
        with single_rank() as rank_env:
            return carry_out(config, assignment, rank, link, RankContext(rank_env))
    order = assignment.order
    group: object = None
    before = process_state.baseline(config.gpu_share, context.keeps_group())
    wandb_run = open_run()
    _set_torchrun_variables(config, context.rank_env)
    if rank == 0:
        os.environ.update(assignment.environment)
    try:
        with context.group as group:
            end = train(config, order, rank, link, context)
    except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
        end = failed(config, order, error)
    leaks = finish_run(wandb_run, failed=end.kind != "ended")
    leaks += process_state.restore(before)
    del group  # after the models, which a caught error held until now; see `RankStore.group`
    after = process_state.baseline(config.gpu_share, context.keeps_group())
    leaks += process_state.difference(before, after)
    leaks += [f"it {SIGTERM_TEXT}"] * context.notice.given
    leaks += ["it imported a version of the code"] * (config.variants is not None)
    return replace(end, leaks=tuple(map(encodable, leaks)))


def failed(config: SlotConfig, order: Order, error: BaseException) -> Outcome:
    """Return the outcome of an order that failed with an error; its traceback goes to the log."""
    if isinstance(error, CheckpointDamaged):
        # "damaged" makes the controller forget the checkpoint that the order started from, so the
        # kind is used for that checkpoint alone.
        damaged: OutcomeKind = "damaged" if order.is_start(error.file) else "collateral"
        return make_outcome(config, order, damaged, f"{error}")
    if isinstance(error, CommandLost):  # its output is in the log
        return make_outcome(config, order, "collateral", f"{error}")
    if isinstance(error, energy.Unmeasured):
        return replace(make_outcome(config, order, "user", f"{error}"), sweep_wide=True)
    if isinstance(error, CommandFailed):
        outcome = make_outcome(config, order, error.kind, f"{error}")
        return replace(outcome, sweep_wide=error.sweep_wide)
    text = log_error(error)
    kind = outcome_kind(error, config.gpu_share, config.folder)
    return make_outcome(config, order, kind, text_of(error) if kind == "diverged" else text)


def make_outcome(
    config: SlotConfig,
    order: Order,
    kind: OutcomeKind,
    message: str,
    leaks: Sequence[str] = (),
) -> Outcome:
    """Return the outcome of an order, its message redacted, shortened and encodable."""
    # Redact first: a text shortened before could end in a part of a secret.
    text = shortened(redact(message, config.secrets.values()))
    return Outcome(order.id, kind, text, tuple(encodable(leak) for leak in leaks))


def log_error(error: BaseException) -> str:
    """Print an error of the user's code into the order's log, and return the printed text."""
    text = traceback_of(error)
    with suppress(OSError, ValueError):  # the disk is full, or the user's code closed the log
        print(text, end="", file=sys.stderr, flush=True)  # noqa: T201 - the log is where it goes
    return text


def _set_torchrun_variables(config: SlotConfig, rank_env: RankEnv) -> None:
    """Set torchrun's variables if there are several ranks, or a strategy for them is asked for.

    Otherwise remove them: accelerate, for one, takes a process with WORLD_SIZE=1 for a distributed
    one.
    """
    if config.distributed:
        os.environ.update(rank_env.variables)
        return
    for name in rank_env.variables:
        os.environ.pop(name, None)


def train(config: SlotConfig, order: Order, rank: int, link: Link, context: RankContext) -> Outcome:
    """Run the trainable for an order, and return the outcome, which is no failure.

    Raises:
        Unmeasured: the sweep needs the energy.
        BaseException: whatever the trainable's code raises; see `failed`.
    """
    meter = energy.meter(config.gpu, config.gpu_share)
    if config.needs_energy and not meter.measures:
        what = "the sweep goes by energy_kwh, which is not measured here"
        raise energy.Unmeasured(f"{what}: {meter.unmeasured}; see hposvc docs cost")
    if config.variants is not None:
        name, order = config.variants.enter(config.trainable, order)
        config = replace(config, trainable=name)
    worker = make_worker(config, order, rank, link)
    worker.notice, worker.sharing = context.notice, context.sharing
    worker.kwh = partial(meter.kwh, order.id)
    worker.hosts = tuple(address.host for address in context.rank_env.addresses)
    try:
        if config.command is not None:
            config.command.train(worker, order.params, context.rank_env, context.peers)
            return _ended(worker)
        trainable = load.resolve(config.trainable)
        if config.nan != "stop" and not load.follows_failure_nan(trainable):
            message = f"failure.nan is {config.nan}, but {config.trainable} {load.ITS_OWN}"
            raise load.LoadError(message)
        _call(load.bind(trainable, order.params), worker)
    except Preempted as preemption:
        return make_outcome(config, order, "preempt", preemption.reason)
    except StopTrial:
        pass
    finally:
        worker.close()
    # A trial resumed after its last report may have nothing left to do.
    if worker.reported is None and (worker.until is not None or worker.first == 1):
        raise ReportError(
            "the trainable returned without a report; "
            + (f"{worker.warning}; " if worker.warning else "")
            + f"{report_hint(imported_here())}"
            "call worker.report(step, {...}), "
            "or hposvc.report({...}) where there is no worker"
        )
    return _ended(worker)


def _call(train: Callable[[Worker], object], worker: Worker) -> None:
    """Train; sys.exit() is a way to return, as it is for a program.

    Raises:
        ReportError: the trainable called a function of Ray Train that found no session.
        TrainableExited: with an exit status other than 0.
    """
    try:
        train(worker)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if status != 0:
            text = "it called sys.exit" if isinstance(end.code, int) else f"{end.code}"
            raise TrainableExited(f"exit status {status}: {text}") from end
    except RuntimeError as error:
        if hint := ray_train_hint(text_of(error)):
            raise ReportError(hint) from error
        raise


def _ended(worker: Worker) -> Outcome:
    how: How = "beyond" if worker.beyond else "" if worker.told_to_stop else "returned"
    warning = encodable(worker.warning)
    return Outcome(worker.order, "ended", how=how, unused=worker.unused, warning=warning)


def trial_seed(seed: int, order: Order) -> int:
    """Return the seed of an order's trial in a sweep with this seed: 32 bits, as numpy takes it."""
    number = int("".join(filter(str.isdigit, order.seed_of or order.trial)) or 0)
    return (seed * 1_000_003 + number) % 2**32


def make_worker(config: SlotConfig, order: Order, rank: int, link: Link) -> Worker:
    """Return the Worker that a rank's trainable gets for an order."""
    return Worker(
        rank=rank,
        world_size=config.world_size,
        first=order.first,
        until=order.until,
        total=config.total,
        seed=trial_seed(config.seed, order),
        training=load.training_of(config.training, order.params),
        params=order.params,
        trial=order.trial,
        order=order.id,
        metrics=config.metrics,
        start=order.start,
        checkpoints=config.folder / "checkpoints",
        every=config.every,
        milestones=order.milestones,
        link=link,
        gpu=config.gpu,
        nan=config.nan,
        shrink=order.shrink,
        storage=config.storage,
        sweep_seed=config.seed,
        unit=config.unit,
        interval=config.interval,
        datasets=config.datasets,
    )


def outcome_kind(
    error: BaseException, gpu_share: float = 1.0, folder: Path | None = None
) -> OutcomeKind:
    """Classify an error of the user's code: its own fault, memory, a disk, another rank.

    Args:
        gpu_share: the rank's share of a GPU's memory.
        folder: the sweep's, whose file system may be at fault; None: there is none.
    """
    if isinstance(error, Diverged):
        return "diverged"
    if isinstance(error, TooLarge):  # check before its cause, which is an out-of-memory error
        return "oversize"
    if out_of_memory(error):
        # Memory taken by other processes says nothing about the configuration.
        return "collateral" if taken_by_others(error, gpu_share) else "oom"
    if folder is not None and is_storage_fault(error, folder):
        return "collateral"
    if is_disk_full(error):
        return "storage"
    if any(isinstance(cause, StoreFailed) for cause in causes(error)):
        return "collateral"
    return "collateral" if _is_peer_lost(error) else "user"


def _is_peer_lost(error: BaseException) -> bool:
    """Return whether an error only says that another rank is gone."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if "DistError" in names or "PeerLost" in names:
        return True
    # gloo raises plain RuntimeErrors that begin with a place in its source (torch 2.13). That a
    # message is longer than expected comes of tensors of unlike sizes, which peers sent alive.
    text = text_of(error)
    return type(error) is RuntimeError and GLOO.match(text) is not None and "preamble" not in text


def log_file(folder: Path, trial: str, order: int, rank: int) -> Path:
    """Return the file that takes a rank's output during an order."""
    return folder / "logs" / trial / f"{order}-{rank}.log"


def import_trainable(config: SlotConfig, file: Path) -> None:
    """Import the trainable before the slot's first order, with its output going to a file.

    Raises:
        LoadError: in place of an error that contains a secret, cannot be sent, or would end the
            process silently. All other errors pass unchanged.
    """
    secrets = config.secrets.values()
    try:
        with redirect_output(file, secrets):
            load.resolve(config.trainable)
    except BaseException as error:
        # Ray stores and shows the full traceback, with its causes.
        text = "".join(traceback.format_exception(error))
        if isinstance(error, Exception) and shortened(redact(text, secrets)) == text:
            raise
        message = shortened(redact(f"{type(error).__name__}: {text_of(error)}", secrets))
        raise load.LoadError(f"{config.trainable} fails when it is loaded: {message}") from None
    finally:
        if file.exists() and file.stat().st_size == 0:
            file.unlink()
