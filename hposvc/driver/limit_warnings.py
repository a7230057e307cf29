"""Warnings, each given once, about trials that do not behave as their spec expects.

Either a metric with a limit is not reported, so that no trial can satisfy the limit; or a first
report lacks the sweep's metric; or a metric is no number, so that it is left out of reports; or a
trainable returns before the last step of its trial, would report more steps than a trial has, or
reports the last one first; or initial points are given twice; or an objective suggests a parameter
that the sweep lacks.
"""

import logging
from collections.abc import Sequence

from hposvc.events import Ended, Event, Reported, Suggested
from hposvc.spec import SweepSpec
from hposvc.spec.sections import Fidelity
from hposvc.state.doubts import describe_only_last, only_last, repeated_points
from hposvc.state.summary import describe_unsearched
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from hposvc.state.trial_table import RETURNED_EARLY
from searchers import nearest
from trainables.contract import describe_left_out

log = logging.getLogger("hposvc")


class MissingLimitMetrics:
    """Warns of unreported metrics and unexpected lengths of trials; a Watcher of the runner."""

    def __init__(self, sweep: str, spec: SweepSpec) -> None:
        self._sweep = sweep
        self._awaited = dict.fromkeys(limit.metric for limit in spec.bounds)
        # Kinds of unexpected length not warned of yet.
        self._lengths_to_warn = {"short", "long", "last"}
        self._unsearched: set[str] = set()  # parameters warned of
        for repeated in repeated_points(spec):
            log.warning("%s: %s", sweep, repeated)
        self._left_out: set[str] = set()  # metrics warned of
        self._warned: set[str] = set()  # trials warned of
        self._unseen = {metric.name for metric in spec.objectives}  # not reported or warned of yet

    def on_events(self, state: SweepState, events: Sequence[Event]) -> None:
        """Check new reports and ends of trials; called after the events are durable."""
        for event in events:
            if isinstance(event, Reported):
                self._check_objectives(event)
                self._check_left_out(event)
                self._check_metrics(event)
            elif isinstance(event, Ended) and event.trial in state.trials:
                if not event.warning:
                    self._check_length(event, state.trials[event.trial], state.spec.fidelity)
                elif event.trial not in self._warned:
                    self._warned.add(event.trial)
                    log.warning("%s: %s: %s", self._sweep, event.trial, event.warning)
            elif isinstance(event, Suggested) and event.name not in self._unsearched:
                self._unsearched.add(event.name)
                log.warning("%s: %s", self._sweep, describe_unsearched(event.name, state.spec))

    def _check_length(self, event: Ended, trial: TrialState, fidelity: Fidelity | None) -> None:
        """Warn if the trial was not trained from its first to its last step."""
        if fidelity is None:
            return
        if only_last(trial, fidelity.max):
            if "last" in self._lengths_to_warn:
                self._lengths_to_warn.remove("last")
                log.warning("%s: %s", self._sweep, describe_only_last(trial))
            return
        if event.how == "beyond":
            self._warn_of_length(
                "long",
                "%s: %s was ended at step %d, which is fidelity.max, and would have reported more; "
                "raise fidelity.max, or leave fidelity out: each trial then runs to its own end",
                trial,
            )
        elif trial.reason == RETURNED_EARLY:
            self._warn_of_length(
                "short",
                "%s: %s ended by itself at step %d, before fidelity.max; it counts as completed, "
                "and whatever compares trials at later steps leaves it out. Lower fidelity.max to "
                "the steps that trials have, or report as many",
                trial,
            )

    def _warn_of_length(self, what: str, message: str, trial: TrialState) -> None:
        if what in self._lengths_to_warn:
            self._lengths_to_warn.remove(what)
            log.warning(message, self._sweep, trial.id, trial.step)

    def _check_objectives(self, event: Reported) -> None:
        lacking = sorted(self._unseen - event.metrics.keys())
        self._unseen.clear()
        if lacking:
            log.warning(
                "%s: %s reported step %d without the sweep's metric %s (%s); a trial is judged at "
                "its steps that have it, and fails if none has",
                self._sweep,
                event.trial,
                event.step,
                lacking[0],
                nearest(lacking[0], event.metrics),
            )

    def _check_left_out(self, event: Reported) -> None:
        new = {name: kind for name, kind in event.left_out.items() if name not in self._left_out}
        if new:
            self._left_out.update(new)
            log.warning(
                "%s: %s reported what is no number, and is left out here and in other reports: %s",
                self._sweep,
                event.trial,
                describe_left_out(new),
            )

    def _check_metrics(self, event: Reported) -> None:
        for metric in [metric for metric in self._awaited if metric not in event.metrics]:
            log.warning(
                "%s: %s reported no %s, which a limit is on (%s); until it does it keeps no limit "
                "on it, and can't be the best",
                self._sweep,
                event.trial,
                metric,
                nearest(metric, event.metrics),
            )
            del self._awaited[metric]
