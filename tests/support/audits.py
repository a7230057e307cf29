"""Audits of events that no journal holds."""

from collections.abc import Iterable

from hposvc.analysis.audit import Line
from hposvc.analysis.audit.sweep_audit import SweepAudit
from hposvc.analysis.audit.trial_audit import TrialAudit
from hposvc.events import Event
from hposvc.spec import SweepSpec


def of_trial(spec: SweepSpec, events: Iterable[Event], trial: str) -> list[Line]:
    """Return the audit of one trial, oldest line first; empty: it was never proposed."""
    audit = TrialAudit(spec, trial)
    for event in events:
        audit.apply(event)
    return audit.lines


def of_sweep(spec: SweepSpec, events: Iterable[Event]) -> list[Line]:
    """Return the audit of decisions about the sweep as a whole, oldest line first."""
    audit = SweepAudit(spec)
    for event in events:
        audit.apply(event)
    return audit.lines
