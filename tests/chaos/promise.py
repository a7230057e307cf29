"""The promise, checked from outside of a sweep that is over: what was broken, in words.

Who looks is none of those who wrote: the journal is read by a simple-minded ledger, values come
from the trainable's own formula, reports from diaries that the ranks kept beside the service,
processes from /proc. Nothing broken is an empty list.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psutil
from aftermath import Ledger, run_of
from scene import End, Scene
from terminal import GONE_S, until
from wandering import MOOD, account, loss

from hposvc.analysis.lineage import ancestry
from hposvc.events import Ended, Event, Finished, Ordered, Requested, Suspended
from hposvc.open_sweep import Record
from hposvc.tracking.reconcile import Reconciler
from trainables.storage import checkpoint
from trainables.storage.checkpoint import CheckpointDamaged

RANKS = 2
ROUND = "round-"  # how the sweeps of rounds are called
FULL_JOURNAL = "disk is full; what is written there is whole: free some (hposvc gc, hposvc rm ID)"
JOURNAL_AWAY = "connection is bad"  # as psycopg says it of a server that is down


@dataclass
class Verdict:
    """What was found."""

    broken: list[str] = field(default_factory=list)
    events: int = 0  # in the journal
    lost: int = 0  # reports that were acknowledged, and are in no journal
    twice: int = 0  # points that MLflow holds more than once
    redone_s: float = 0.0  # of ranks: work that was done, and done again


@dataclass(frozen=True)
class Attempt:
    """A step as a diary has it."""

    trial: str
    order: int
    step: int
    begun: float  # monotonic seconds of the machine
    heard: float | None  # None: its report never came back


def check(scene: Scene) -> Verdict:
    """All that holds of a sweep that is over."""
    events, record = scene.events(), scene.record()
    verdict = Verdict(events=len(events))
    attempts = [one for one in diaries(scene.place) if one.begun >= scene.set_back_at]
    ledger = Ledger()
    for number, event in enumerate(events, start=1):
        try:
            ledger.read(event)
        except AssertionError as error:
            verdict.broken.append(f"journal: event {number} ({event.kind}): {error}")
    lost = sorted(unheard(events, attempts, ledger))
    twice = list(doubles(scene, record))
    verdict.lost, verdict.twice = len(lost), len(twice)
    verdict.redone_s = redone(attempts)
    verdict.broken += [f"lost: {each}" for each in lost]
    verdict.broken += [f"twice: {each}" for each in twice]
    verdict.broken += over(scene, events, record, ledger)
    verdict.broken += words(scene.sweep, scene.ends, events)
    verdict.broken += values(scene, record, ledger)
    verdict.broken += counted(scene, record)
    verdict.broken += checkpoints(scene, record)
    verdict.broken += mlflow(scene, record)
    verdict.broken += left(scene)
    return verdict


def over(scene: Scene, events: list[Event], record: Record, ledger: Ledger) -> Iterator[str]:
    """The sweep has ended once, with all of its trials, and nothing is under way."""
    state = record.state
    if state.state != "COMPLETED":
        yield f"the sweep is {state.state} ({state.reason})"
    early = [after for event, after in pairwise(events) if isinstance(event, Finished)]
    if not all(isinstance(after, Requested) and after.verb == "extend" for after in early):
        yield "it did not finish once"  # but for an `extend` that came behind its end
    if not isinstance(events[-1], Finished):
        yield f"its last event is {events[-1].kind}"
    if ledger.out:
        yield f"orders are still out: {sorted(ledger.out)}"
    if len(ledger.trials) != scene.trials:
        yield f"{len(ledger.trials)} trials, not {scene.trials}"
    yield from (f"{one.id} is {one.state}" for one in state.tried.values() if not one.over)
    if record.driver != "none":
        yield f"a driver is {record.driver}"


def words(sweep: str, ends: list[End], events: list[Event]) -> Iterator[str]:
    """No driver broke of a bug of ours, and one that rested for want of room said what to do."""
    remedy = f"free some (hposvc gc), then: hposvc resume {sweep}"
    for end in ends:
        if end.code not in (0, 5) and not (end.code == 2 and MOOD in end.said):
            yield f"a driver broke: {end.said}"
        rested = isinstance(events[end.seq - 1], Suspended)
        told = "no room: " in end.said and remedy in end.said
        # The journal failed, too, as it was to give its lease back.
        told = told or FULL_JOURNAL in end.said or JOURNAL_AWAY in end.said
        if rested and not (end.code == 5 and told):
            yield f"a driver rested with {end.code}: {end.said}"


def values(scene: Scene, record: Record, ledger: Ledger) -> Iterator[str]:
    """Every trial has each of its steps, and each has the value that its rate gives."""
    struck = scene.place / "nan.at"
    spoilt = struck.read_text() if struck.exists() else ""
    for trial in record.state.tried.values():
        points = ledger.points.get(trial.id, {})
        if sorted(points) != list(range(1, trial.step + 1)):
            yield f"{trial.id}: steps {sorted(points)}, and stands at {trial.step}"
        for step, metrics in points.items():
            expected = loss(float(trial.params_at(step)["lr"]), step)  # type: ignore[arg-type]
            if f"{trial.id} {step}" == spoilt:
                expected = math.nan
            found, held = metrics["loss"], trial.steps.get(step, math.inf)
            if not same(found, expected) or not same(held, expected):
                yield f"{trial.id} step {step}: {found}, held as {held}, not {expected}"


def counted(scene: Scene, record: Record) -> Iterator[str]:
    """What somebody excluded is on record, unless an older journal took its place."""
    excluded = record.state.excluded
    if "exclude" in scene.hit and not excluded and not scene.set_back_at:
        yield "an exclusion is lost"
    if record.state.best in excluded:
        yield f"{record.state.best} is excluded, and the best"


def same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def checkpoints(scene: Scene, record: Record) -> Iterator[str]:
    """On disk is what is kept, whole, and each checkpoint is an account of its own lineage."""
    state = record.state
    kept = {saved.path for trial in state.tried.values() for saved in trial.checkpoints}
    folder = scene.home.folder(scene.sweep, state.spec.storage) / "checkpoints"
    there = {str(found) for found in folder.glob("*/*")}
    yield from (f"checkpoint that nobody keeps: {path}" for path in sorted(there - kept))
    yield from (f"checkpoint that is gone: {path}" for path in sorted(kept - there))
    for trial in state.trials.values():
        for saved in trial.checkpoints:
            if saved.path in scene.torn:
                continue
            try:
                checkpoint.verify(saved)
            except CheckpointDamaged as error:
                yield str(error)
                continue
            expected = [
                account(stretch.trial, step, float(stretch.params["lr"]))  # type: ignore[arg-type]
                for stretch in ancestry(state, trial.id, saved.step)
                for step in range(stretch.first, stretch.last + 1)
            ]
            if (Path(saved.path) / "account").read_text().splitlines() != expected:
                yield f"checkpoint {saved.path} is not of {expected}"


def mlflow(scene: Scene, record: Record) -> Iterator[str]:
    """MLflow holds what the journal says; a second reading of both, by the service itself."""
    comparison = Reconciler(scene.home, scene.journal, record.row).compare()
    if comparison.stance != "compared":
        yield f"MLflow was {comparison.stance}"
    if comparison.runs != len(record.state.tried) + 1:
        yield f"MLflow has {comparison.runs} runs of {len(record.state.tried)} trials and seeds"
    for one in comparison.differences:
        yield f"MLflow: {one.run or 'sweep'}: {one.what}: {one.found}, not {one.expected}"


def doubles(scene: Scene, record: Record) -> Iterator[str]:
    """Points that MLflow holds more than once."""
    tracker = Reconciler(scene.home, scene.journal, record.row).tracker
    if not tracker.find():
        return
    for name, runs in tracker.runs().items():
        if len(runs) > 1:
            yield f"run of {name or 'the sweep'}"
        for run in runs if name else ():
            held = Counter(point.step for point in tracker.points(run, "loss"))
            yield from (f"{name} step {step}" for step, count in held.items() if count > 1)


def left(scene: Scene) -> Iterator[str]:
    """No process that was started for the sweep still lives; a neighbour's Ray is no such."""
    try:
        until(lambda: not strays(scene), "nothing is left", GONE_S)
    except TimeoutError:
        yield from (f"process left: {each}" for each in strays(scene))


def strays(scene: Scene) -> list[str]:
    found = []
    for each in scene.terminal.processes():
        try:
            command = " ".join(each.cmdline())[:120]
        except psutil.Error:
            continue
        if not (scene.shared and _is_ray_s_own(command)):
            found.append(f"{each.pid} {command}")
    return found


def _is_ray_s_own(command: str) -> bool:
    """Whether Ray has it for whoever comes next, or it is the neighbour: nothing that trains."""
    return "sleep" not in command and not command.startswith(f"ray::{ROUND}")


def diaries(place: Path) -> list[Attempt]:
    """Every step that any rank 0 says it began."""
    attempts: dict[tuple[int, int, str, int], Attempt] = {}
    for file in sorted(place.glob("diary-*.jsonl")):
        for line in file.read_text().splitlines():
            entry = json.loads(line)
            trial, order, step = entry["trial"], entry["order"], entry["step"]
            key = (entry["pid"], order, trial, step)
            begun = attempts[key].begun if key in attempts else entry["time"]
            heard = entry["time"] if entry["what"] == "heard" else None
            attempts[key] = Attempt(trial, order, step, begun, heard)
    return list(attempts.values())


def unheard(events: list[Event], attempts: list[Attempt], ledger: Ledger) -> Iterator[str]:
    """Reports that were acknowledged, and that the journal does not have.

    A report is acknowledged when a rank that had to wait for a decision went on, or when the
    order's own end is on record. Others may be lost with a driver, and are done again.
    """
    orders = {one.order.id: one.order for one in events if isinstance(one, Ordered)}
    ended = {event.order for event in events if isinstance(event, Ended)}
    for one in attempts:
        order = orders.get(one.order)
        told = one.order in ended or (order is not None and one.step in order.milestones)
        run = one.trial if order is None else run_of(order)
        if one.heard is not None and told and one.step not in ledger.points.get(run, {}):
            yield f"{one.trial} step {one.step} of order {one.order}"


def redone(attempts: list[Attempt]) -> float:
    """Seconds of ranks that went into steps which a later order did again.

    A step that was never heard of lasted until the last word of any rank before it was done again.
    """
    seconds = 0.0
    for one in attempts:
        again = [
            other
            for other in attempts
            if (other.trial, other.step) == (one.trial, one.step) and other.order > one.order
        ]
        if not again:
            continue
        if one.heard is not None:
            seconds += one.heard - one.begun
        else:
            seconds += _cut_short(one, min(other.begun for other in again), attempts)
    return seconds * RANKS


def _cut_short(one: Attempt, limit: float, attempts: list[Attempt]) -> float:
    """How long an attempt may have lasted, at most: as long as the longest that came back."""
    longest = max((each.heard - each.begun for each in attempts if each.heard), default=0.0)
    return min(longest, limit - one.begun)
