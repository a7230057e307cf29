"""A sweep's best trial as a version of a registered model, and whether it is the new champion.

A version is known by its run in MLflow and by its tags: the sweep, the trial and the step of the
checkpoint that it is. So what is registered twice is there once, and a sweep that has the id of one
that was removed has versions of its own. Metric and value are tags too, so that versions can be
compared without the sweeps that they came from.
"""

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hposvc.spec import Metric
from hposvc.spec.register import Register
from hposvc.state import SweepState
from hposvc.tracking.locking import locked
from hposvc.tracking.projection import PARENT
from hposvc.tracking.tracker import Tracker, reached
from trainables.checkpoints.checkpoint import CheckpointDamaged, Saved, verify

KEY = ("hposvc.sweep", "hposvc.trial", "hposvc.step")  # tags by which a run's version is known
DECIDED = "hposvc.decision"  # in words; one tag an alias


class Unfit(Exception):
    """The sweep has nothing to register."""


@dataclass(frozen=True)
class Candidate:
    """What is to be registered."""

    sweep: str
    trial: str
    step: int
    value: float
    metric: Metric
    saved: Saved

    @property
    def tags(self) -> dict[str, str]:
        """What a version says of itself."""
        return {
            "hposvc.sweep": self.sweep,
            "hposvc.trial": self.trial,
            "hposvc.step": str(self.step),
            "hposvc.metric": self.metric.name,
            "hposvc.goal": self.metric.goal,
            "hposvc.value": repr(self.value),
        }


@dataclass(frozen=True)
class Promotion:
    """What was decided."""

    sweep: str
    trial: str
    model: str
    version: str
    alias: str
    before: str | None  # the version that had the alias; None: none had
    verdict: Literal["moved", "stays"]
    reason: str


def candidate(sweep: str, state: SweepState) -> Candidate:
    """The best trial, with the checkpoint of the step that its value is of.

    Raises:
        Unfit: there is none, or no such checkpoint of it.
    """
    metrics = state.spec.objectives
    if len(metrics) > 1:
        raise Unfit(f"{sweep}: of {len(metrics)} metrics there is a front, and no best trial")
    if state.best is None:
        raise Unfit(f"{sweep}: no trial has a value, so there is nothing to register")
    trial = state.trials[state.best]
    selected = trial.selected
    assert selected is not None  # the best trial has a value
    step, value = selected[0], trial.value
    saved = trial.checkpoint_at(step)
    if saved is None or not saved.size or value is None:
        message = f"the best trial {trial.id} has no checkpoint of step {step}, which its value is"
        raise Unfit(f"{sweep}: {message} of; see `checkpoints` in the spec")
    return Candidate(sweep, trial.id, step, value, metrics[0], saved)


@dataclass(frozen=True)
class Registry:
    """The models of an MLflow, from one home at a time."""

    tracker: Tracker  # open
    register: Register

    def promote(self, best: Candidate, run: str) -> Promotion:
        """Register the candidate unless it is, and move the alias to it if it passes the gate.

        Args:
            run: MLflow's, of the candidate's trial.

        Raises:
            Unfit: its checkpoint is damaged, or gone.
        """
        with locked(self.tracker.home.path / "register.lock"):
            version = self._find(best, run) or self._make(best, run)
            return self._decide(best, version)

    def decided(self, best: Candidate, run: str) -> bool:
        """Whether that was done before; what people changed since is theirs."""
        version = self._find(best, run)
        return version is not None and self._mark in self._tags(version)

    def _decide(self, best: Candidate, version: str) -> Promotion:
        name, alias, client = self.register.model, self.register.alias, self.tracker.client
        before = self._champion()
        moved, reason = self._judge(best, version, before)
        if moved:
            client.set_registered_model_alias(name, alias, version)
        verdict: Literal["moved", "stays"] = "moved" if moved else "stays"
        client.set_model_version_tag(name, version, self._mark, f"{verdict}: {reason}")
        return Promotion(best.sweep, best.trial, name, version, alias, before, verdict, reason)

    def _judge(self, best: Candidate, version: str, champion: str | None) -> tuple[bool, str]:
        """Whether the alias moves, and why."""
        if champion is None:
            return True, "no version had it"
        if champion == version:
            return False, "this version has it"
        tags, metric = self._tags(champion), best.metric
        told = (tags.get("hposvc.metric"), tags.get("hposvc.goal"))
        try:
            held = float(tags.get("hposvc.value", ""))
        except ValueError:
            return False, f"version {champion} has no tag hposvc.value to compare with"
        if told != (metric.name, metric.goal):
            of = f"{told[1]} {told[0]}, and here it is {metric.goal} {metric.name}"
            return False, f"version {champion} is by {of}"
        gain, gate = metric.loss(held) - metric.loss(best.value), self.register.gate
        # 0.57 - 0.56 is a little less than 0.01, and is meant to be as much.
        enough = gain >= gate or math.isclose(gain, gate, rel_tol=1e-9)
        compared = f"{metric.name} {best.value:.6g} after {held:.6g} of version {champion}"
        if math.isnan(held) or (gain > 0 and enough):
            return True, compared
        needed = f"an improvement of {gate:.6g}" if gate else "an improvement"
        return False, f"{compared} is not {needed}"

    @property
    def _mark(self) -> str:
        return f"{DECIDED}.{self.register.alias}"

    def _champion(self) -> str | None:
        """The version that has the alias."""
        query = f"name = '{self.register.model}'"
        for model in self.tracker.client.search_registered_models(query):
            found = model.aliases.get(self.register.alias)
            return None if found is None else str(found)
        return None

    def _tags(self, version: str) -> Mapping[str, str]:
        found = self.tracker.client.get_model_version(self.register.model, version)
        return dict(found.tags)

    def _find(self, best: Candidate, run: str) -> str | None:
        """The candidate's version, if it has one."""
        token: str | None = None
        while True:
            page = self.tracker.client.search_model_versions(
                f"name = '{self.register.model}'", page_token=token
            )
            for each in page:
                mine = all(each.tags.get(name) == best.tags[name] for name in KEY)
                if mine and each.run_id == run:
                    return str(each.version)
            token = page.token
            if not token:
                return None

    def _make(self, best: Candidate, run: str) -> str:
        """Put the checkpoint among the run's artifacts, and make a version of it."""
        client, name = self.tracker.client, self.register.model
        place = f"checkpoint-{best.step}"
        with tempfile.TemporaryDirectory(prefix="hposvc-") as scratch:
            try:
                folder = verify(best.saved, lambda: Path(scratch))
            except (CheckpointDamaged, OSError) as error:
                message = f"the checkpoint of {best.trial} at step {best.step} can't be used"
                raise Unfit(f"{best.sweep}: {message}: {error}") from error
            client.log_artifacts(run, str(folder), place)
        if not client.search_registered_models(f"name = '{name}'"):
            client.create_registered_model(name)
        source = f"{client.get_run(run).info.artifact_uri}/{place}"
        made = client.create_model_version(name, source, run, best.tags)
        return str(made.version)


def promote(
    tracker: Tracker, register: Register, state: SweepState, runs: Mapping[str, str]
) -> Promotion:
    """Register the best trial of a sweep as it stands, and decide on the alias.

    Args:
        runs: MLflow's run of each trial; the sweep's own is told the decision.

    Raises:
        Unfit: there is nothing to register.
        TrackerError: MLflow is out of reach.
    """
    best = candidate(tracker.sweep, state)
    if best.trial not in runs or PARENT not in runs:
        sweep = tracker.sweep
        message = f"MLflow knows no run of {best.trial} yet; hposvc doctor {sweep} --fix tells it"
        raise Unfit(f"{sweep}: {message}")
    with reached(tracker.uri):
        tracker.look()
        made = Registry(tracker, register).promote(best, runs[best.trial])
        for name, text in (("hposvc.registered", _name(made)), ("hposvc.decision", told(made))):
            tracker.client.set_tag(runs[PARENT], name, text)
    return made


def conclude(
    tracker: Tracker, register: Register, state: SweepState, runs: Mapping[str, str]
) -> str | None:
    """The same when a sweep has ended, once: what came of it, in a line; None: it was done before.

    A sweep that is looked at again later takes no alias back that people moved meanwhile.
    """
    try:
        best = candidate(tracker.sweep, state)
        if best.trial in runs and Registry(tracker, register).decided(best, runs[best.trial]):
            return None
        return told(promote(tracker, register, state, runs))
    except Unfit as error:
        return f"nothing is registered: {error}"


def told(promotion: Promotion) -> str:
    """A decision in a line."""
    one, before = promotion, promotion.before
    version = f"{_name(one)} ({one.sweep} {one.trial})"
    if one.verdict == "moved":
        return f"{version} is {one.alias} now: {one.reason}"
    return f"{version} is registered; {one.alias} stays at version {before}: {one.reason}"


def _name(promotion: Promotion) -> str:
    return f"{promotion.model} version {promotion.version}"
