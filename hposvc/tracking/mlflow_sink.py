"""MLflow as a sink: a run for each trial, below a run for the sweep.

Whatever goes wrong (a deleted run, a wiped database), `open` looks at what MLflow holds, and the
recorder continues from there.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from hposvc.journal.home import REPORT
from hposvc.state.sweep import SweepState
from hposvc.tracking import provenance, runs_page
from hposvc.tracking.description import headline
from hposvc.tracking.mlflow_client import Run, Tracker, tracker_of
from hposvc.tracking.mlflow_names import NESTING, legal_entry
from hposvc.tracking.mlflow_server import hide_passwords
from hposvc.tracking.projection import EXPERIMENT, PARENT, Projection, RunContent, run_name
from hposvc.tracking.promotion import log_best, promote_once
from hposvc.tracking.sink import Altered, Batch, Sink, SinkSetting

log = logging.getLogger("hposvc")


class MLflowSink(Sink):
    """The runs of a sweep in MLflow; the journal records their ids."""

    name: ClassVar[str] = "mlflow"
    gathers: ClassVar[bool] = True  # a request takes some 10 ms, however few points it sends

    def __init__(self, setting: SinkSetting, tracker: Tracker | None = None) -> None:
        self.sweep, self.spec, self.journal = setting.sweep, setting.spec, setting.journal
        self.tracker = tracker or tracker_of(setting.home, setting.sweep.id, setting.spec)
        self._alive = setting.alive
        self._report = setting.folder / REPORT
        self._runs: dict[str, str] = {}  # id of each run
        self._untouched: dict[str, Run] = {}  # runs found in MLflow and not changed since
        self._unused: set[str] = set()  # runs that were withdrawn

    def open(self) -> None:
        """Find the sweep's runs in MLflow, and record them in the journal."""
        experiment = self.tracker.open()
        self._untouched = self._choose_runs(self.tracker.runs())
        self._runs = {name: run.info.run_id for name, run in self._untouched.items()}
        recorded = self.journal.runs(self.sweep.id)
        self.journal.forget_runs(self.sweep.id, [*recorded.keys() - self._runs.keys()])
        self.journal.record_runs(self.sweep.id, {**self._runs, EXPERIMENT: experiment})

    def resume_point(self, cursor: int, begun: Collection[str]) -> int:
        """Return the cursor; 0 if runs are gone: then everything is sent, or compared."""
        return cursor if self._runs.keys() >= set(begun) else 0

    def clear(self) -> None:
        """Move all runs to MLflow's trash, since no point of a run can be deleted."""
        for run in self._runs.values():
            self.tracker.delete(run)
        self._runs, self._untouched = {}, {}

    def send(self, batches: Sequence[Batch]) -> None:
        """Send MLflow what its runs lack."""
        for batch in batches:
            entries = {name: legal_entry(entry) for name, entry in batch.entries.items()}
            if PARENT not in self._runs:
                self._create_parent(entries[PARENT])
            for name, entry in entries.items():
                self._send_entry(name, entry)

    def ensure_runs(self, trials: Sequence[str]) -> None:
        """Create the runs of coming trials that have none yet."""
        for name in trials:
            if name not in self._runs:
                self._create_run(name, None, {"hposvc.trial": name, "hposvc.state": "PENDING"})

    def withdraw_runs(self, begun: Collection[str]) -> None:
        """Take runs of trials that have not begun off the record."""
        # The next driver hands out the runs on record.
        self._unused = self._runs.keys() - {PARENT, *begun}
        self.journal.forget_runs(self.sweep.id, [*self._unused])

    def finish(self, projection: Projection) -> None:
        """Delete runs of trials that never came, and check all runs of an ended sweep.

        Raises:
            Altered: runs of an ended sweep are missing.
        """
        begun = {*projection.state.tried}
        for name in self._unused & begun:  # before the runs were withdrawn
            self.journal.record_runs(self.sweep.id, {name: self._runs[name]})
        for name in self._unused - begun:
            self.tracker.delete(self._runs.pop(name))
        if projection.state.finished:
            self._complete_runs(projection)

    def close(self, state: SweepState) -> None:
        """Log the best checkpoint of an ended sweep as a model; register it if its spec says so.

        The outcome is stored beside the journal, for the driver to print.
        """
        register, sweep = self.spec.register, self.sweep.id
        if not state.finished:
            return
        try:
            log_best(self.tracker, state, self.journal.runs(sweep))
        except Exception as error:  # noqa: BLE001 - the sweep is recorded, and its checkpoint kept
            log.warning("the best checkpoint could not be logged: %s", _describe(error))
        if register is None:
            return
        try:
            outcome = promote_once(self.tracker, register, state, self.journal.runs(sweep))
        except Exception as error:  # noqa: BLE001 - the sweep is recorded; `promote` tries again
            outcome = f"the best trial could not be registered: {_describe(error)}"
        if outcome is not None:
            log.info("%s", outcome)
            self.journal.record_registered(sweep, self.name, outcome)

    def attach_report(self, state: SweepState) -> None:
        """Attach the report of an ended sweep, which is written while its events are still sent."""
        self.open()
        self._attach_files()
        self._describe_experiment(headline(state))

    def _complete_runs(self, projection: Projection) -> None:
        """Send what runs of an ended sweep lack; users' own MLflow calls may have changed them."""
        runs = self._choose_runs(self.tracker.runs())
        names = {PARENT, *projection.state.tried}
        if names - runs.keys():
            raise Altered("runs of this sweep were deleted in MLflow; they are made again")
        ranks = projection.ranks()
        for name in names:
            entry = self._nested(name, legal_entry(projection.current_entry(name)))
            if name in ranks:
                entry.tags["hposvc.rank"] = ranks[name]
            self._send(runs[name].info.run_id, self.tracker.missing(runs[name], entry))
        self._attach_files()
        self._share_view(finished=True)
        self._describe_experiment(headline(projection.state))

    def _choose_runs(self, runs_by_trial: Mapping[str, list[Run]]) -> dict[str, Run]:
        """Keep a single run per trial, the recorded or else the first, and delete the others."""
        recorded = self.journal.runs(self.sweep.id)
        kept_runs = {}
        for name, runs in runs_by_trial.items():
            candidates = [run for run in runs if run.info.run_id == recorded.get(name)] or runs
            kept_runs[name] = candidates[0]
            for run in runs:
                if run is not candidates[0]:
                    self.tracker.delete(run.info.run_id)
        return kept_runs

    def _create_parent(self, entry: RunContent) -> None:
        """Create the parent run, with the spec and packages attached."""
        tags = {**provenance.tags(Path(self.spec.folder or "")), **entry.tags}
        self._create_run(PARENT, entry.start, tags)
        self._attach_files()
        self._share_view(finished=entry.status is not None)
        self._describe_experiment("running")

    def _send_entry(self, name: str, entry: RunContent) -> None:
        if name not in self._runs:
            self._create_run(name, entry.start, entry.tags, entry.name, entry.parent)
            entry = replace(entry, tags={}, name="")
        elif name in self._untouched:
            entry = self.tracker.missing(self._untouched.pop(name), self._nested(name, entry))
        self._send(self._runs[name], entry)

    def _nested(self, name: str, entry: RunContent) -> RunContent:
        """Return the entry with its nesting tag, since its parent may have been created anew."""
        if name == PARENT:
            return entry
        return replace(entry, tags={**entry.tags, NESTING: self._runs[entry.parent]})

    def _create_run(
        self,
        name: str,
        start: int | None,
        tags: Mapping[str, str],
        shown: str = "",
        parent: str = PARENT,
    ) -> None:
        tags = {**tags, "hposvc.sweep": self.sweep.id}
        if name != PARENT:
            tags[NESTING] = self._runs[parent]
        self._runs[name] = self.tracker.create(shown or run_name(self.sweep.id, name), start, tags)
        self.journal.record_runs(self.sweep.id, {name: self._runs[name]})

    def _send(self, run: str, entry: RunContent) -> None:
        self._alive()
        self.tracker.send(run, entry)

    def _share_view(self, finished: bool) -> None:
        """Store the view that the printed address opens."""
        self.tracker.store_view(runs_page.view(self.sweep.id, self.spec, finished))

    def _describe_experiment(self, result: str) -> None:
        """Put the sweep, with its links, at the top of the experiment's description."""
        run, experiment = self._runs[PARENT], self.journal.runs(self.sweep.id)[EXPERIMENT]
        report = REPORT if self._report.exists() else ""
        line = runs_page.note_line(experiment, run, self.sweep.id, result, report)
        self.tracker.describe_experiment(lambda note: runs_page.note_with(note, line))

    def _attach_files(self) -> None:
        try:
            self.tracker.add_files(self._runs[PARENT], provenance.files(self.sweep.spec))
            self.tracker.upload(self._runs[PARENT], self._report)
        except Exception as error:  # noqa: BLE001 - the artifact store may be out of reach alone
            log.warning("the spec and the packages could not be attached: %s", _describe(error))


def _describe(error: Exception) -> str:
    return hide_passwords(f"{type(error).__name__}: {error}")
