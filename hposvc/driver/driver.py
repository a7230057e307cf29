"""The driver of a sweep: takes the lease, and opens the backend, recorder and main loop."""

import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cluster import own_ray
from hposvc import spec as specs
from hposvc.backends.backend import Backend, Setting
from hposvc.backends.null import NullBackend
from hposvc.controller.controller import Controller
from hposvc.driver.disk_space import DiskSpace
from hposvc.driver.limit_warnings import MissingLimitMetrics
from hposvc.driver.loop import MessageListener, Runner, Watcher
from hposvc.driver.memo import Memo
from hposvc.driver.proposals import BackgroundProposer, Proposer, SyncProposer
from hposvc.driver.queue_member import QueueMember
from hposvc.driver.slow_plug_ins import SlowPlugIns
from hposvc.driver.user_stop_rules import StopRules
from hposvc.driver.warm_start import leading, load_warm_start
from hposvc.errors import EventsLost, Interrupted, Terminated
from hposvc.events import ENDS, RENEWALS, SLOTLESS, Requested
from hposvc.journal import submissions
from hposvc.journal.agents import AgentMailbox
from hposvc.journal.claims import journal_id
from hposvc.journal.database import retry_until_answered
from hposvc.journal.home import Home, sign
from hposvc.journal.journal import Due, Journal, SweepRow
from hposvc.journal.lease import Lease
from hposvc.spec import fingerprint, registry
from hposvc.spec.engines import ENGINES, EngineType
from hposvc.spec.paths import checkpoints_url
from hposvc.state.sweep import SweepState
from hposvc.tracking import provenance
from hposvc.tracking.recorder_process import Recorder
from searchers import TRIED, Observation, Searcher, warm_startable_methods, warm_started
from trainables.storage import checkpoint

log = logging.getLogger("hposvc")

TWICE_S = 0.3  # in which a second SIGINT counts as the first one

Result = TypeVar("Result")

# Drives a sweep under its lease, with its first spec.
Work = Callable[[specs.SweepSpec, Lease, Recorder], SweepState]


@dataclass
class Driver:
    """Drives a sweep to its end."""

    home: Home
    journal: Journal
    sweep: SweepRow
    address: str | None = None  # of a Ray cluster; None: Ray on this machine
    watchers: Sequence[Watcher] = ()
    # Secrets delivered with a Ray job, whose runtime environment Ray has prepared; None: the driver
    # itself reads secrets from its environment and has Ray prepare the processes.
    delivered: Mapping[str, str] | None = field(default=None, repr=False)
    # In place of the engine's backend: the caller carries out orders within `drive`, which makes
    # every proposal from all results so far. None: the engine's.
    embedded: Callable[[Setting], Backend] | None = None
    report_begun: bool = field(default=False, init=False)  # whether a process writes the report

    def drive(self) -> SweepState:
        """Take the sweep over and run it to its end; a sweep that has ended is only reconciled.

        Raises:
            Busy: another driver has the sweep.
            Interrupted: the driver was interrupted; the sweep can be resumed.
            OutOfReach: the cluster can't be reached, or can never provide the resources.
        """
        parsed = self.sweep.parsed
        spec = parsed if isinstance(parsed, specs.SweepSpec) else specs.restore(self.sweep.spec)
        return self._with_lease(spec, self._drive)

    def end(self) -> SweepState:
        """Carry out a request to end the sweep, in place of its lost driver."""
        ending = replace(self, delivered={})
        return ending._with_lease(specs.restore(self.sweep.spec), ending._end)

    def _with_lease(self, spec: specs.SweepSpec, work: Work) -> SweepState:
        lease = Lease(self.journal.store, self.sweep.id)
        self._query(partial(lease.acquire, self._say))
        try:
            while True:
                try:
                    state = self._work(spec, lease, work)
                except EventsLost as error:
                    # With `embedded`, the caller has orders of what was lost.
                    if self.embedded is not None or self.journal.find(self.sweep.id) is None:
                        raise
                    log.warning("%s; going on from what it holds", error)
                    lease.release()
                    self._query(partial(lease.acquire, self._say))
                    continue
                self._say("")
                if self._query(
                    partial(self.journal.release_lease, lease, partial(_when_due, state))
                ):
                    return state
                work = work if state.finished else self._end
        finally:
            lease.release()

    def _work(self, spec: specs.SweepSpec, lease: Lease, work: Work) -> SweepState:
        """Do the work, and wait for what it sends to sinks."""
        recorder = Recorder(
            self.home,
            self.sweep.id,
            spec,
            self.journal,
            self.delivered or {},
            reports=self.embedded is None,  # it takes longer than a small search
        )
        # The lease is kept until every sink has everything, however slow it is.
        with lease.renewed_in_background(), recorder:
            state = work(spec, lease, recorder)
            waiting = self._query(lambda: recorder.waiting)
            if waiting:
                self._say(f"sending the remaining events to {' and '.join(waiting)}")
        self.report_begun = recorder.report_begun
        return state

    def _drive(self, spec: specs.SweepSpec, lease: Lease, recorder: Recorder) -> SweepState:
        """Run the sweep with its engine's slots."""
        controller, seq = self._query(lambda: rebuild(self.journal, self.sweep.id, spec))
        state, spec = controller.state, controller.state.spec
        folder = self.home.folder(self.sweep.id, spec.storage)
        if state.finished:
            # Its driver may have died before doing so.
            _delete_unknown_checkpoints(folder, None, state)
            if spec.engine.traits.foreign:
                self._mailbox.close()
            return state
        sign(folder, f"{self.journal.store}")
        checkpoints_at = checkpoints_url(self.sweep.id, spec.storage)
        setting = self._build_setting(spec, folder, state.now)
        setting = replace(setting, code=fingerprint.fingerprint(spec))
        engine = ENGINES[spec.engine.type]
        with ExitStack() as stack:
            with self._starting_ray(engine):
                # Both take a second or more, while Ray starts.
                searcher, earlier = spec.searcher(), state.earlier
                if earlier is None:
                    earlier = self._query(lambda: load_warm_start(self.journal, spec))
                # Versions of the code are never run in this process.
                path = engine.backend_for(spec.resources.ranks if spec.variants is None else 2)
                opened: Backend = (self.embedded or registry.resolve(path))(setting)
            backend = stack.enter_context(closing(opened))
            self._query(lease.check)  # starting a cluster may have taken long
            interrupted = stack.enter_context(interruptible())
            has_slots = backend.slots() > 0 and not backend.virtual
            rules = StopRules.of(spec.stop.rules)
            plug_ins = {
                **{f"stop.rules {name}": rule for name, rule in rules.rules.items()},
                f"search.method {spec.search.name}": searcher,
                f"scheduler.type {spec.scheduler.name}": controller.policy,
            }
            stack.enter_context(SlowPlugIns(self.sweep.id, plug_ins))
            engine_watchers = [
                registry.resolve(name)(self.sweep.id, spec) for name in engine.watchers
            ]
            runner = Runner(
                sweep=self.sweep.id,
                controller=controller,
                backend=backend,
                proposer=_build_proposer(
                    spec, searcher, backend.virtual or self.embedded is not None, earlier or ()
                ),
                journal=self.journal,
                lease=lease,
                watchers=[*engine_watchers, *self._all_watchers(spec, recorder)],
                rules=rules,
                interrupted=interrupted.is_set,
                environment=recorder.environment,
                earlier=earlier,
                memo=self._query(lambda: Memo.of(self.journal, self.sweep, spec)),
                seq=seq,
                queue=QueueMember.of(lease, setting.owner, backend),
                disk_space=DiskSpace((folder, self.home.path)) if has_slots else None,
                # Not before: until then an earlier, unseen driver may still write.
                attached=lambda: (
                    _delete_unknown_checkpoints(folder, checkpoints_at, state)
                    if has_slots and not state.running()  # agents write checkpoints meanwhile
                    else None
                ),
            )
            runner.run(f"{socket.gethostname()}:{os.getpid()}")
        if spec.engine.traits.foreign:
            self._mailbox.close()  # also of orders that were lost because no agents were awaited
        if has_slots:
            _delete_unknown_checkpoints(folder, checkpoints_at, state)
        return state

    def _starting_ray(self, engine: EngineType) -> AbstractContextManager[object]:
        """Start this machine's own Ray if the sweep runs on it; the backend will wait for it."""
        ray = sys.modules.get("ray")
        if not engine.shared or self.address is not None or self.embedded is not None:
            return nullcontext()
        if ray is not None and ray.is_initialized():  # then the backend takes that connection
            return nullcontext()
        return own_ray.start(self.home.path / "ray")

    def _end(self, spec: specs.SweepSpec, lease: Lease, recorder: Recorder) -> SweepState:
        """End or pause the sweep as was requested, without slots."""
        controller, seq = self._query(lambda: rebuild(self.journal, self.sweep.id, spec))
        state, spec = controller.state, controller.state.spec
        if state.finished or not self._query(lambda: self._end_requested(state)):
            return state
        folder = self.home.folder(self.sweep.id, spec.storage)
        sign(folder, f"{self.journal.store}")
        setting = self._build_setting(spec, folder, state.now)
        with closing(NullBackend(setting)) as backend, interruptible() as interrupted:
            Runner(
                sweep=self.sweep.id,
                controller=controller,
                backend=backend,
                proposer=SyncProposer(spec, spec.searcher()),
                journal=self.journal,
                lease=lease,
                watchers=self._all_watchers(spec, recorder),
                interrupted=interrupted.is_set,
                earlier=state.earlier,
                seq=seq,
                only_ends=True,
            ).run(f"{socket.gethostname()}:{os.getpid()}")
        if spec.engine.traits.foreign:
            self._mailbox.close()
        return state

    @property
    def _mailbox(self) -> AgentMailbox:
        return AgentMailbox(self.journal.store, self.sweep.id)

    def _user(self) -> str:
        """Return whose sweep it is: who submitted it to a server, or who runs it."""
        submission = submissions.find(self.journal.store, self.sweep.id)
        by = provenance.user() if submission is None else submission.by
        return by.partition("@")[0]

    def _query(self, ask: Callable[[], Result]) -> Result:
        """Query the journal, waiting patiently while it does not answer."""
        return retry_until_answered(ask, self.sweep.id)

    def _say(self, text: str) -> None:
        for watcher in self.watchers:
            if isinstance(watcher, MessageListener):
                try:
                    watcher.say(text)
                except Exception as error:  # an observer must not end the sweep
                    message = f"{self.sweep.id}: {type(watcher).__name__} broke; the sweep goes on"
                    log.warning(message, exc_info=error)

    def _end_requested(self, state: SweepState) -> bool:
        """Whether an end or a pause was requested and is not carried out yet."""
        asked = state.state != "PAUSED" and state.asked in ENDS
        # These are no ends: `rebuild` has carried them out, and does so again for later ones.
        waiting = [request for _, request in self.journal.requests(self.sweep.id)]
        requests = [request for request in waiting if request.verb not in SLOTLESS]
        return asked or any(_when_due(state, request) == "now" for request in requests)

    def _all_watchers(self, spec: specs.SweepSpec, recorder: Recorder) -> list[Watcher]:
        return [*self.watchers, MissingLimitMetrics(self.sweep.id, spec), recorder]

    def _build_setting(self, spec: specs.SweepSpec, folder: Path, clock: float) -> Setting:
        setting = Setting(
            self.sweep.id,
            spec,
            folder,
            self.home.path,
            self.address,
            clock,
            mailbox=self._mailbox,
            journal=self._query(partial(journal_id, self.journal.store)),
            owner=self._query(self._user),
            say=self._say,
        )
        if self.delivered is not None:
            return replace(setting, secrets=self.delivered)
        environment = spec.environment
        secrets = environment.reveal(os.environ)
        return replace(setting, secrets=secrets, runtime_env=environment.runtime_env)


def rebuild(journal: Journal, sweep: str, spec: specs.SweepSpec) -> tuple[Controller, int]:
    """Rebuild a sweep's controller from the journal.

    Args:
        spec: the spec as first recorded.

    Returns:
        The controller, and the number of the last event.
    """
    controller = Controller(spec, registry.build(registry.SCHEDULERS, spec.scheduler))
    seq = 0
    for number, event in journal.read(sweep):
        controller.apply(event)
        seq = number
    return controller, apply_requests(journal, sweep, controller, seq)


def apply_requests(journal: Journal, sweep: str, controller: Controller, seq: int) -> int:
    """Apply requests for longer or more trials before anything is built from the old limits.

    So are the requests that need no slots.

    Args:
        seq: number of the last event in the journal, which the controller has applied.

    Returns:
        The number of the last event afterwards.
    """
    requests = journal.requests(sweep)
    last_renewal = max(
        (number for number, request in requests if request.verb in RENEWALS), default=0
    )
    # Requests about the whole sweep from before a renewal are void.
    handled = {
        number: request
        for number, request in requests
        if request.verb in SLOTLESS
        or (number <= last_renewal and (request.verb in RENEWALS or request.trial is None))
        if request.verb != "propose"
    }
    # Dated as the last event: no driver worked since, so the sweep's clock stood still.
    now = controller.state.now
    due = (request for request in handled.values() if request.verb in (*RENEWALS, *SLOTLESS))
    events = []
    for request in due:
        events.append(controller.accept(replace(request, time=now)))
        controller.apply(events[-1])
    return journal.append(sweep, seq, events, list(handled))


def _when_due(state: SweepState, request: Requested) -> Due:
    """Decide when to carry out a request that came too late for the driver's loop."""
    if request.verb in SLOTLESS:
        return "now"
    if request.verb == "propose":
        return "later"  # also after the end: `extend` may give it a trial
    if state.finished:
        return "now" if request.verb in RENEWALS else "void"
    if request.trial is not None or request.verb not in ENDS:
        return "later"  # when the sweep is resumed
    return "void" if request.verb == "pause" and state.state == "PAUSED" else "now"


def _build_proposer(
    spec: specs.SweepSpec, searcher_alone: Searcher, waits: bool, earlier: Sequence[Observation]
) -> Proposer:
    searcher, first = warm_started(searcher_alone, earlier), leading(spec, earlier)
    if earlier and searcher is searcher_alone and not first:
        log.warning(
            "warm_start: search method %s learns nothing from earlier trials; "
            "choose one of %s, or set top",
            spec.search.name,
            ", ".join(warm_startable_methods()),
        )
    tried = [seen.params for seen in earlier if TRIED in seen.note]
    if waits:
        return SyncProposer(spec, searcher, first, tried)
    return BackgroundProposer(spec, searcher, first, tried)


def _delete_unknown_checkpoints(folder: Path, url: str | None, state: SweepState) -> None:
    """Delete checkpoints that the journal does not have; the ranks that wrote them are gone."""
    kept_paths = {saved.path for saved in state.checkpoints.all()}
    try:
        # Unfinished writes of killed ranks, in any case.
        checkpoint.keep_only(folder / "checkpoints", kept_paths)
        if url is not None:
            checkpoint.keep_only(url, kept_paths)
    except OSError as error:
        log.warning("unneeded checkpoints could not be deleted: %s", error)
    state.checkpoints.dropped.clear()


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Turn SIGINT and SIGTERM into a flag on the main thread; Python handles a second SIGINT.

    An Interrupted that leaves the context is a Terminated if SIGTERM came first. What is sent to a
    whole process group comes twice at once: the driver's parent passes it on.
    """
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    first = 0  # signal
    impatient = math.inf  # from when on, in monotonic seconds, another SIGINT is meant

    def raise_flag(number: int, frame: Any) -> None:
        nonlocal first, impatient
        first = first or number
        if number == signal.SIGINT and time.monotonic() > impatient:
            signal.default_int_handler(number, frame)
        impatient = min(impatient, time.monotonic() + TWICE_S)
        flag.set()

    old_handlers = {
        number: signal.signal(number, raise_flag) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield flag
    except Interrupted as error:
        if first == signal.SIGTERM:
            raise Terminated from error
        raise
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
