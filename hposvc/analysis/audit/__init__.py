"""Audits of trials and sweeps: their events, with the reasons of each decision.

An audit is a fold of the journal. It quotes the reasons that searchers and schedulers recorded; it
computes only a trial's rank among the others, from their reports up to that moment.
"""

from dataclasses import dataclass

from hposvc.analysis.audit.entry import Line
from hposvc.analysis.audit.sweep_audit import SweepAudit
from hposvc.analysis.audit.trial_audit import TrialAudit
from hposvc.errors import NotFound
from hposvc.open_sweep import OpenSweep

__all__ = ["Audit", "Line", "explain"]


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
    follow = sweep.follow_as(
        lambda spec: SweepAudit(spec) if trial is None else TrialAudit(spec, trial)
    )
    audit, name = follow.look(), follow.row.id
    if trial is not None and not audit.lines:
        raise NotFound(f"{name} has no trial {trial}", fix=f"`hposvc trials {name}` lists them")
    return Audit(audit.spec.unit, audit.lines)
