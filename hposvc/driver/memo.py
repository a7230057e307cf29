"""Trainings that were recorded before, so that a sweep with `memo: true` need not do them again.

A training is the same if its project, code, training options, ranks, length, values and seed are,
and the data sets that it declared, as far as they have digests. Where it declared data, this
sweep's own must be known first, from a trial that was trained.

The code is what a sweep's fingerprint holds; what that imports is not looked at.
"""

import logging
from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hposvc import spec as specs
from hposvc.driver.earlier_sweeps import NEWEST, UNREADABLE
from hposvc.driver.warm_start import Reports
from hposvc.events import Event, Ordered, Reported, order_of
from hposvc.journal.journal import Journal, SweepRow
from hposvc.spec import SweepSpec
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from searchers import identity
from trainables.contract import DataSet, Order, trial_seed

SAME = (
    *("trainable", "command", "serve", "collect", "launch", "training", "environment", "datasets"),
)
LENGTH = ("unit", "every")  # of the section fidelity; `max` may change in an extension
READ = 200_000  # events that are read at most, in some twenty seconds

Equal = tuple[Hashable, int, int | None]  # values, seed, length

log = logging.getLogger("hposvc")


@dataclass(frozen=True)
class Recorded:
    """A training that came to its end."""

    name: str  # of its trial, `SWEEP/TRIAL`
    reports: Reports
    digests: Mapping[str, str]  # of its data sets, by name


@dataclass
class Memo:
    """The recorded trainings that a sweep may take, by values and seed."""

    spec: SweepSpec
    trainings: Mapping[Equal, Recorded] = field(default_factory=dict)

    @classmethod
    def of(cls, journal: Journal, sweep: SweepRow, spec: SweepSpec) -> "Memo":
        """Return the trainings of the newest sweeps of the same code in the same project."""
        if not spec.memo or not sweep.code:
            return cls(spec)
        rows = [row for row in journal.sweeps(spec.project, limit=NEWEST) if row.id != sweep.id]
        known, read = journal.listed([row.id for row in rows]), 0
        trainings: dict[Equal, Recorded] = {}
        for row in rows:
            if _setting(row) != _setting(sweep):
                continue
            read += known[row.id].seq if row.id in known else 0
            if read > READ:
                log.warning("memo: %s and older sweeps are not read: they are too long", row.id)
                break
            try:
                trainings = {**_trainings(journal, row), **trainings}
            except UNREADABLE:  # it is of another version, or damaged
                continue
        return cls(spec, trainings)

    def find(self, state: SweepState, order: Order) -> Recorded | None:
        """Return the recorded training of an order; None: it has to be done."""
        of_search = order.replicate <= state.replicates.own_seeds
        found = self.trainings.get(_key(self.spec, order)) if of_search else None
        needed = {*order.milestones, order.until} - {None}
        if found is None or not needed <= found.reports.keys():
            return None
        last = found.reports[max(found.reports)]
        if not all(metric.name in last for metric in self.spec.objectives):
            return None
        ours = next((trial.data for trial in state.trials.values() if trial.data), ())
        return found if _digests(ours) == found.digests or not found.digests else None


def _key(spec: SweepSpec, order: Order) -> Equal:
    return identity(dict(order.params)), trial_seed(spec.seed, order), spec.last_step


def _setting(row: SweepRow) -> list[Any]:
    """Return what trainings have in common that differ in values, seeds and length alone."""
    resources, fidelity = (row.spec.get(key) or {} for key in ("resources", "fidelity"))
    length = [fidelity.get(key) for key in LENGTH]
    price = row.spec.get("price") if row.spec.get("serve") else None  # of which costs are computed
    return [row.code, *map(row.spec.get, SAME), *length, resources.get("workers"), price]


def _digests(data: tuple[DataSet, ...]) -> dict[str, str]:
    return {one.name: one.digest for one in data if one.digest}


def _trainings(journal: Journal, row: SweepRow) -> dict[Equal, Recorded]:
    """Return the trainings of a sweep that came to their ends, but for those that it recalled."""
    spec = specs.restore(row.spec)
    state = SweepState(spec)
    keys: dict[str, Equal | None] = {}  # of the runs: trials and their seeds
    reports = defaultdict[str, dict[int, Mapping[str, float]]](dict)
    for _, event in journal.read(row.id):
        run = _run_of(state, event)
        state.apply(event)
        if isinstance(event, Ordered) and (run := _run_of(state, event)) is not None:
            key = _key(state.spec, event.order)
            if keys.setdefault(run.id, key) != key:  # it was prolonged
                keys[run.id] = None
        elif isinstance(event, Reported) and run is not None:
            reports[run.id].setdefault(event.step, event.metrics)
    return {
        known: Recorded(
            f"{row.id}/{run.shown_as}", reports[name], _digests(state.trials[run.shown_as].data)
        )
        for name, run in state.tried.items()
        if (known := keys.get(name)) is not None and run.completed(known[2])
        if not (run.memo or run.excluded) and len(run.segments) == 1
    }


def _run_of(state: SweepState, event: Event) -> TrialState | None:
    """Return the trial, or the seed of one, that an event is about; None: it is about none."""
    run = state.by_order(order_of(event))
    is_other = run is not None and run.replicate_of and not state.replicates.is_seed(run)
    return None if is_other else run
