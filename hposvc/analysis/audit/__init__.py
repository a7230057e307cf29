"""Audits of trials and sweeps: their events, with the reasons of each decision.

An audit is a fold of the journal. It quotes the reasons that searchers and schedulers recorded; it
computes only a trial's rank among the others, from their reports up to that moment.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hposvc import spec as specs
from hposvc.analysis.audit.entry import Line
from hposvc.analysis.audit.sweep_audit import decisions
from hposvc.analysis.audit.trial_audit import TrialAudit
from hposvc.api import OpenSweep
from hposvc.errors import NotFound
from hposvc.events import Event
from hposvc.spec import SweepSpec

__all__ = ["Audit", "Line", "explain", "of_sweep", "of_trial"]


@dataclass(frozen=True)
class Audit:
    """The audit of a trial, or of a sweep."""

    unit: str  # of the lines' steps
    lines: list[Line]  # oldest first


def explain(sweep: OpenSweep, trial: str | None = None) -> Audit:
    """Return the audit of a trial; None: of the sweep.

    Raises:
        NotFound: there is no such sweep or trial.
    """
    row, events = sweep.history()
    spec = specs.restore(row.spec)
    lines = of_sweep(spec, events) if trial is None else of_trial(spec, events, trial)
    if trial is not None and not lines:
        raise NotFound(f"{row.id} has no trial {trial}", fix=f"`hposvc trials {row.id}` lists them")
    return Audit(spec.fidelity.unit if spec.fidelity else "step", lines)


def of_trial(spec: SweepSpec, events: Iterable[Event], trial: str) -> list[Line]:
    """Return the audit of one trial, oldest line first; empty: it was never proposed.

    Args:
        spec: the spec with which the sweep began.
        events: all events of the sweep, in order.
    """
    audit = TrialAudit(spec, trial)
    for event in events:
        audit.read(event)
    return audit.lines


def of_sweep(spec: SweepSpec, events: Iterable[Event]) -> list[Line]:
    """Return the audit of decisions about the sweep as a whole, oldest line first."""
    return list(decisions(spec, events))
