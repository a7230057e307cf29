"""Requests to a sweep, which pause, stop, kill, exclude, extend and retry record in its journal.

A living driver carries out a request, on whatever machine it runs. Without a driver a stop, a pause
or an exclusion is carried out at once, in this process; requests that need slots wait for `resume`.
"""

import getpass
import socket
import time
from collections.abc import Mapping
from dataclasses import replace

from hposvc import api
from hposvc.analysis.lineage import copies_of
from hposvc.driver.driver import Driver
from hposvc.errors import Busy, NotFound, fail
from hposvc.events import BECAUSE, ENDS, MARKS, NOTHING, RENEWALS, SLOTLESS, Verb
from hposvc.journal.follow import Follow
from hposvc.journal.lease import Holder, holder
from hposvc.open_sweep import Record, check_trial
from hposvc.spec import SweepSpec
from hposvc.spec.extension import LIMITS, accepted, changed, trained_again
from hposvc.state.receipt import RequestReceipt
from hposvc.state.sweep import SweepState
from hposvc.state.trial import OVER

POLL_S = 0.05
HEEDED_S = 1.0  # a driver looks for requests five times a second; later while it starts or ends


def steer(
    sweeps: api.Sweeps,
    sweep: str,
    verb: Verb,
    trial: str | None = None,
    changes: Mapping[str, object] = NOTHING,
) -> RequestReceipt:
    """Request a verb of hposvc.events of a sweep, or of one of its trials.

    Raises:
        NotFound: there is no such sweep or trial.
        SpecError: a changed key is not a limit, or a value does not fit.
    """
    record = api.load(sweeps, sweep)
    answer, due = check(sweeps, record, verb, trial, changes)
    if not due:
        return answer
    row = record.row
    number = sweeps.journal.request(row.id, verb, trial, changes, sweeps.by or asker())
    driver = _await_driver(sweeps, row.id, number)
    if driver.state == "alive":
        return replace(answer, driver="alive", place=driver_place(driver))
    # No driver is at work: the state changes only if this process changes it.
    if verb in SLOTLESS or (trial is None and verb in ENDS):
        try:
            state = Driver(sweeps.home, sweeps.journal, row).end()
        except Busy:  # another driver has just resumed the sweep, and sees the request
            driver = holder(sweeps.journal.store, row.id)
            return replace(answer, driver="alive", place=driver_place(driver))
    else:
        state = api.load(sweeps, row.id).state
    return replace(answer, state=state.state, driver=driver.state, place="")


def check(
    sweeps: api.Sweeps,
    record: Record,
    verb: Verb,
    trial: str | None,
    changes: Mapping[str, object],
) -> tuple[RequestReceipt, bool]:
    """Check a request that is to be recorded for the sweep's driver.

    Returns:
        the receipt, and whether it is to be recorded; False: it is so already.

    Raises:
        NotFound, SpecError: see `steer`.
    """
    row, state = record.row, record.state
    if trial is not None:
        check_trial(record, trial)
    if verb == "extend":
        _check_changes(record, changes)
    if verb == "retry":
        _check_failed(record, trial)
    driver = holder(sweeps.journal.store, row.id)
    place = driver_place(driver)
    answer = RequestReceipt(row.id, state.state, driver.state, place, changes=dict(changes))
    if verb in MARKS:
        assert trial is not None  # nobody excludes a sweep
        because = f"{changes.get(BECAUSE, '')}".strip()
        if verb == "exclude" and not because:
            raise fail("is empty", "--because", fix="say why, for the record")
        asked = [one for _, one in sweeps.journal.requests(row.id) if one.trial == trial]
        pending = [f"{one.changes.get(BECAUSE, '')}" for one in asked if one.verb in MARKS]
        copies = copies_of(state, trial) if because else ()
        last = [state.excluded.get(trial, ""), *pending][-1]
        return replace(answer, copies=copies), bool(pending) or last != because
    if verb not in RENEWALS:
        paused = verb == "pause" and state.state == "PAUSED" and driver.state != "alive"
        # `extend` may begin what was proposed.
        done = state.finished and verb not in ("propose", "admit")
        if done or (paused and trial is None):
            return answer, False
        spec = state.spec
        may_have_replicates = spec.finalists is not None or spec.baseline is not None
        over = trial is not None and state.trials[trial].over and not may_have_replicates
        if trial is not None and over:
            return replace(answer, trial_state=state.trials[trial].state), False
    return answer, True


def renew(
    sweeps: api.Sweeps,
    sweep: str,
    verb: Verb,
    trial: str | None,
    changes: Mapping[str, object],
    address: str | None,
    watching: api.Watching,
) -> Record | RequestReceipt:
    """Request a renewal of a sweep, and drive it here if it has ended.

    Returns:
        the sweep when it has ended again; the receipt, if it had not ended or a driver has it.

    Raises:
        NotFound, SpecError: see `steer`.
    """
    answer = steer(sweeps, sweep, verb, trial, changes)
    over = answer.state in OVER
    while over:
        try:
            with watching(answer.sweep) as watchers:
                return api.drive(sweeps, sweeps.find(answer.sweep), watchers, address)
        except Busy:  # another process has the lease: it takes the request, or releases the lease
            follow = sweeps.follow(answer.sweep)
            answer = _update_receipt(sweeps, follow, answer)
            while answer.state in OVER and answer.driver == "alive":
                answer = _update_receipt(sweeps, follow, answer)
            over = answer.driver != "alive"
    return answer


def _update_receipt(
    sweeps: api.Sweeps, follow: Follow[SweepState], answer: RequestReceipt
) -> RequestReceipt:
    """Return the receipt with the states a moment later."""
    time.sleep(POLL_S)
    driver = holder(sweeps.journal.store, answer.sweep)
    state = follow.look().state
    return replace(answer, state=state, driver=driver.state, place=driver_place(driver))


def _await_driver(sweeps: api.Sweeps, sweep: str, request: int) -> Holder:
    """Return the driver that has taken a request, or will; dead or none: no driver is at work."""
    deadline = time.monotonic() + HEEDED_S
    while True:
        driver = holder(sweeps.journal.store, sweep)
        taken = request not in [number for number, _ in sweeps.journal.requests(sweep)]
        # Brief holders of a lease, such as `gc`, take no requests.
        if taken or driver.state != "alive" or time.monotonic() > deadline:
            return driver
        time.sleep(POLL_S)


def _check_failed(record: Record, trial: str | None) -> None:
    """Check that there is a failed trial to retry."""
    row, state = record.row, record.state
    if trial is None and not (record.failures() or state.replicates.failed()):
        raise NotFound(f"{row.id} has no failed trial", f"`hposvc trials {row.id}` lists them all")
    if trial is not None and not (trial in record.failures() or state.replicates.failed(trial)):
        phase = "excluded" if trial in state.excluded else state.trials[trial].state
        raise NotFound(f"{trial} of {row.id} is {phase}", "only trials that failed are tried again")


def _check_changes(record: Record, changes: Mapping[str, object]) -> None:
    if not changes:
        fix = f"give --trials N, or --set of seeds.TRIAL or one of {', '.join(LIMITS)}"
        raise fail("is missing", "what to extend", fix=fix, at_key=True)
    counted = accepted(record.state.spec, changes, len(record.state.trials))
    if trained_again(counted):
        _check_room(record.state, changed(record.state.spec, counted))
    if "fidelity.max" in changes and record.driver == "alive":
        sweep = record.row.id
        message = f"its ranks have the old one; `hposvc pause {sweep}`, extend it, and resume it"
        raise fail(f"can't be moved while a driver is at work: {message}", "fidelity.max")


def _check_room(state: SweepState, spec: SweepSpec) -> None:
    """Check that a budget is left for trials that are to be trained again."""
    spent = spec.spending(state.elapsed_s, state.rank_s, state.energy_kwh)
    for key, (used, limit) in spent.items():
        if used >= limit:
            fix = f"give more by --set budget.{key}=..."
            raise fail("is used up, so nothing is trained again", "budget", key, fix=fix)


def driver_place(driver: Holder) -> str:
    """Return host:pid of the driver at work; empty: there is none."""
    return driver.place if driver.state == "alive" else ""


def asker() -> str:
    """Return user@host of this process."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # no such user: a container with a bare number
        return socket.gethostname()
