"""One driver's session on a sweep: the lease, the recorder, the signals, the loop."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hposvc import plugins
from hposvc import spec as specs
from hposvc.backends.backend import Backend, Setting
from hposvc.controller import Controller
from hposvc.home import Home, checkpoints_url, sign
from hposvc.journal import Journal, SweepRow
from hposvc.lease import Lease
from hposvc.proposer import Ahead, Inline, Proposer
from hposvc.recall import leading, recall
from hposvc.redactor import Redactor
from hposvc.room import Room
from hposvc.runner import Interrupted, Runner, Watcher
from hposvc.state import SweepState
from hposvc.tracking.recorder import Recorder
from hposvc.unreported import Unreported
from searchers.earlier import informed, learners
from searchers.searcher import Observation
from trainables.checkpoints import checkpoint

log = logging.getLogger("hposvc")

RENEWALS = ("extend", "retry")
ENDS = ("stop", "kill", "pause")  # that need no slots


@dataclass(frozen=True)
class Driver:
    """Drives one sweep of a home."""

    home: Home
    journal: Journal
    sweep: SweepRow
    address: str | None = None  # of a Ray cluster; None: this machine's own
    watchers: Sequence[Watcher] = ()
    # Secrets that came with a job, whose processes Ray has prepared; None: both are done here.
    delivered: Mapping[str, str] | None = field(default=None, repr=False)

    def drive(self) -> SweepState:
        """Take the sweep over and bring it to its end; one that has ended is only reconciled.

        Raises:
            Busy: another driver has it.
            Interrupted: it can be resumed.
            OutOfReach: the cluster, or resources that it can never give.
        """
        spec = specs.restore(self.sweep.spec)
        return self._with_lease(spec, spec.engine.type)

    def end(self) -> SweepState:
        """Carry out a request to end the sweep, in place of the driver that it has lost."""
        return replace(self, delivered={})._with_lease(specs.restore(self.sweep.spec), "nowhere")

    def _with_lease(self, spec: specs.SweepSpec, engine: str) -> SweepState:
        lease = Lease(self.journal.store, self.sweep.id)
        lease.acquire()
        try:
            with Recorder(self.home, self.sweep.id, spec, self.journal) as recorder:
                return self._drive(spec, engine, lease, recorder)
        finally:
            lease.release()

    def _drive(
        self, spec: specs.SweepSpec, engine: str, lease: Lease, recorder: Recorder
    ) -> SweepState:
        controller, seq = rebuild(self.journal, self.sweep.id, spec)
        state, spec = controller.state, controller.state.spec
        folder = self.home.folder(self.sweep.id, spec.storage)
        if state.finished and engine != "nowhere":
            _tidy(folder, None, state)  # its driver may have died over that
        if state.finished or (engine == "nowhere" and not self._ends(state)):
            return state
        earlier = state.earlier
        if earlier is None and engine != "nowhere":
            earlier = recall(self.journal, spec)
        sign(folder, f"{self.journal.store}")
        kept_in = checkpoints_url(self.sweep.id, spec.storage)
        setting = self._setting(spec, folder, state.now)
        with ExitStack() as held:
            with lease.kept():
                opened: Backend = plugins.resolve(plugins.BACKENDS[engine])(setting)
                backend = held.enter_context(closing(opened))
            interrupted = held.enter_context(interruptible())
            works = backend.slots() > 0 and not backend.virtual
            if works:  # and has seen to it that an earlier driver's ranks are gone
                _tidy(folder, kept_in, state)
            runner = Runner(
                sweep=self.sweep.id,
                controller=controller,
                backend=backend,
                proposer=_proposer(spec, backend.virtual, earlier or ()),
                journal=self.journal,
                lease=lease,
                watchers=[*self.watchers, *self._own_watchers(engine, setting)],
                interrupted=interrupted.is_set,
                environment=recorder.environment,
                earlier=earlier,
                seq=seq,
                room=Room((folder, self.home.path)) if works else None,
            )
            runner.run(f"{socket.gethostname()}:{os.getpid()}")
        if works:
            _tidy(folder, kept_in, state)
        return state

    def _ends(self, state: SweepState) -> bool:
        """Whether somebody wants an end or a pause that is not there yet."""
        found = [one.verb for _, one in self.journal.requests(self.sweep.id) if one.trial is None]
        return state.asked in ENDS or any(verb in ENDS for verb in found)

    def _own_watchers(self, engine: str, setting: Setting) -> list[Watcher]:
        places = plugins.WATCHERS.get(engine, ())
        found = [plugins.resolve(place)(self.sweep.id, setting.spec) for place in places]
        found.append(Unreported(self.sweep.id, setting.spec))
        if setting.secrets:
            redactor = Redactor(setting.folder, tuple(setting.secrets.values()))
            redactor.begin()
            found.append(redactor)
        return found

    def _setting(self, spec: specs.SweepSpec, folder: Path, clock: float) -> Setting:
        setting = Setting(self.sweep.id, spec, folder, self.home.path, self.address, clock)
        if self.delivered is not None:
            return replace(setting, secrets=self.delivered)
        environment = spec.environment
        secrets = environment.reveal(os.environ)
        return replace(setting, secrets=secrets, runtime_env=environment.runtime_env)


def rebuild(journal: Journal, sweep: str, spec: specs.SweepSpec) -> tuple[Controller, int]:
    """A sweep's controller as the journal has it, and the number of the last event.

    Args:
        spec: as it was recorded.
    """
    controller = Controller(spec, plugins.build(plugins.SCHEDULERS, spec.scheduler))
    seq = 0
    for number, event in journal.read(sweep):
        controller.apply(event)
        seq = number
    return controller, open_again(journal, sweep, controller, seq)


def open_again(journal: Journal, sweep: str, controller: Controller, seq: int) -> int:
    """Take in requests for longer or more trials, before anything is built for the old ones.

    Args:
        seq: of the last event in the journal, which the controller knows.

    Returns:
        the number of the last event now.
    """
    found = journal.requests(sweep)
    renewed = max((number for number, one in found if one.verb in RENEWALS), default=0)
    # What was asked of the whole sweep before somebody wished it to go on is void; so is a second
    # pause.
    paused = controller.state.state == "PAUSED"
    taken = {
        number: one
        for number, one in found
        if (number <= renewed and (one.verb in RENEWALS or one.trial is None))
        or (paused and one.verb == "pause")
    }
    # As of the last event: nobody was at work since, so no time of the sweep's has passed.
    now = controller.state.now
    events = [replace(one, time=now) for one in taken.values() if one.verb in RENEWALS]
    for event in events:
        controller.apply(event)
    return journal.append(sweep, seq, events, list(taken))


def _proposer(spec: specs.SweepSpec, virtual: bool, earlier: Sequence[Observation]) -> Proposer:
    alone = plugins.build(plugins.SEARCHERS, spec.search)
    searcher, first = informed(alone, earlier), leading(spec, earlier)
    if earlier and searcher is alone and not first:
        log.warning(
            "warm_start: search method %s learns nothing from earlier trials; "
            "choose one of %s, or set top",
            spec.search.name,
            ", ".join(learners()),
        )
    return Inline(spec, searcher, first) if virtual else Ahead(spec, searcher, first)


def _tidy(folder: Path, url: str | None, state: SweepState) -> None:
    """Delete checkpoints that the journal does not hold; the ranks that wrote them are gone."""
    held = {saved.path for trial in state.trials.values() for saved in trial.checkpoints}
    held |= {saved.path for saved in state.finals.saved()}
    try:
        checkpoint.keep_only(folder / "checkpoints", held)  # what killed ranks were at, in any case
        if url is not None:
            checkpoint.keep_only(url, held)
    except OSError as error:
        log.warning("checkpoints that nobody needs are left: %s", error)
    state.shelf.dropped.clear()


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Turn SIGINT and SIGTERM into a flag, on the main thread; a second SIGINT is Python's own."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def raise_flag(number: int, frame: Any) -> None:
        flag.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {
        number: signal.signal(number, raise_flag) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


__all__ = ["Driver", "Interrupted", "interruptible"]
