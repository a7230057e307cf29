"""A home with sweeps in several states, as a server finds it."""

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import sweep_stories
from simulated_sweeps import make_several, make_spec
from sqlalchemy import insert
from sweep_stories import report

from hposvc import api
from hposvc.events import Attached, from_json
from hposvc.journal import claims, compression
from hposvc.journal.database import EVENTS
from hposvc.journal.journal import SweepRow
from hposvc.journal.lease import Lease
from hposvc.journal.waiting import SweepWait
from hposvc.queue.claim import Account, Claim, Held

RECORDED = Path(__file__).parents[1] / "hposvc" / "contracts" / "recorded"
MANY = {"max": 210, "parallel": 8}  # so many that a simulation is not sent to MLflow


def fill(home: Path) -> api.Sweeps:
    """Record sweeps: ended ones, one that was cut off, a queued one, one of a later version."""
    sweeps = api.Sweeps.open(home)
    spec = make_spec(trials=MANY, scheduler={"type": "asha"}, tags={"team": "vision"})
    api.drive(sweeps, api.create(sweeps, spec, "ended"))
    api.drive(sweeps, api.create(sweeps, make_several(trials=MANY), "front"))
    replay(sweeps, "v1-pbt", "copies")
    replay(sweeps, "v1-finalists", "finalists")
    replay(sweeps, "v1-hyperband-paused", "paused")
    replay(sweeps, "v1-asha-extended", "longer")
    cut_off(sweeps, "cut-off")
    api.create(sweeps, make_spec(project="other"), "queued")
    unreadable(sweeps, "later")
    return sweeps


def join_queue(sweeps: api.Sweeps, sweep: str, held: int, waits_since: float | None) -> None:
    """Give a sweep a driver that shares a cluster, as its claim in the journal says.

    Args:
        held: slots of two that it wants.
        waits_since: of its wait for its first slot; None: it has all that it is due.
    """
    lease = Lease(sweeps.journal.store, sweep)
    lease.acquire()
    slots = tuple(Held(f"{sweep}/slot-{number}", {"node": 1}) for number in range(held))
    claim = Claim(sweep, "vision", "ann", "default", 1.0, 2, {"GPU": 1.0}, held=slots)
    claim = replace(claim, account=Account(used=50.0, due=80.0, at=time.time()))
    wait = None if waits_since is None else SweepWait("1 GPU", waits_since).data()
    share = {"due": 1.5, "slots": 1, "wait": wait, "money": None, "currency": ""}
    claims.write(lease, "a-cluster", asdict(claim), share)


def replay(sweeps: api.Sweeps, recorded: str, sweep: str) -> None:
    """Record a sweep with the events of a recorded one."""
    head, *lines = (RECORDED / f"{recorded}.jsonl").read_text().splitlines()
    events = [
        from_json(kind, time, json.dumps(body)) for kind, time, body in map(json.loads, lines)
    ]
    spec = json.loads(head)["spec"]
    row = SweepRow(sweep, spec["name"], spec["project"], 1.7e9, spec, {})
    assert sweeps.journal.create(row)
    sweeps.journal.append(sweep, 0, events)


def cut_off(sweeps: api.Sweeps, sweep: str) -> None:
    """Record a sweep that has a running trial, which reported NaN, and no driver."""
    api.create(sweeps, make_spec(), sweep)
    begin(sweeps, sweep)


def begin(sweeps: api.Sweeps, sweep: str) -> None:
    """Write the first events of a recorded sweep, as of a driver that died."""
    events = [
        Attached(1.0, "here:1"),
        *sweep_stories.begin(1, 2.0, {"lr": 0.01}),
        report(1, 4.0, 1, 0.5, norm=float("nan")),
        report(1, 5.0, 2, 0.4, norm=float("inf")),
    ]
    sweeps.journal.append(sweep, 0, events)


def unreadable(sweeps: api.Sweeps, sweep: str) -> None:
    """Record a sweep with an event of a later version."""
    api.create(sweeps, make_spec(), sweep)
    values: dict[str, Any] = {"sweep": sweep, "seq": 1, "kind": "teleported", "time": 1.0}
    with sweeps.journal.store.writing() as connection:
        connection.execute(insert(EVENTS).values(**values, body='{"to":"mars"}'))


def reported_events(sweeps: api.Sweeps, sweep: str, count: int) -> None:
    """Append reports of one trial to a sweep that has none yet, `count` events in all."""
    spec = make_spec(fidelity={"max": count})
    if sweeps.journal.find(sweep) is None:
        api.create(sweeps, spec, sweep)
        begun = sweep_stories.begin(1, 2.0, {"lr": 0.01}, count)
        sweeps.journal.append(sweep, 0, [Attached(1.0, "here:1"), *begun])
    last = sweeps.journal.last(sweep)
    reports = [report(1, float(seq), seq - 3, 1 / seq) for seq in range(last + 1, count + 1)]
    sweeps.journal.append(sweep, last, reports)


def pack(sweeps: api.Sweeps, sweep: str) -> None:
    """Pack the events of a sweep as `gc --compact` does, though the sweep may go on."""
    rows = [row for row in sweeps.journal._rows(sweep, 0) if row.kind != compression.KIND]
    if rows:
        sweeps.journal.replace(sweep, compression.pack(rows))
