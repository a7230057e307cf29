"""Audits of trials and sweeps: their events, with the reasons of each decision.

An audit is a fold of the journal. It quotes the reasons that searchers and schedulers recorded; it
computes only a trial's rank among the others, from their reports up to that moment.
"""

from collections.abc import Iterable

from hposvc.analysis.audit.entry import Line
from hposvc.analysis.audit.sweep_audit import decisions
from hposvc.analysis.audit.trial_audit import TrialAudit
from hposvc.events import Event
from hposvc.spec import SweepSpec

__all__ = ["Line", "of_sweep", "of_trial"]


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
