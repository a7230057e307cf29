"""Registration of a sweep's best trial as a model version, and promotion to champion.

A version is identified by its MLflow run and by tags for the sweep, the trial and the step of its
checkpoint. So registering a trial twice makes only a single version, and a sweep with the id of a
removed sweep gets versions of its own. Metric and value are tags too, so that versions can be
compared without the sweeps that they came from.
"""

import math
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from hposvc.errors import NotFound
from hposvc.spec.metrics import Metric
from hposvc.spec.sections import Register
from hposvc.state.sweep import SweepState
from hposvc.tracking.answers import Choice, Promotion
from hposvc.tracking.mlflow_client import Tracker, mlflow_errors
from hposvc.tracking.mlflow_names import legal_entry
from hposvc.tracking.projection import PARENT, RunContent
from trainables.contract import CheckpointDamaged, Saved, locked
from trainables.storage.checkpoint import verify

KEY = ("hposvc.sweep", "hposvc.trial", "hposvc.step")  # tags that identify a run's version
MOST_LOGGED = 256 * 2**20  # bytes of a checkpoint that is logged without being asked for
DECIDED = "hposvc.decision"  # the decision in words; each alias has its own tag


class Unfit(NotFound):
    """The sweep has nothing that can be registered."""


@dataclass(frozen=True)
class Candidate:
    """A trial to register, with the checkpoint of its best step."""

    sweep: str
    trial: str
    step: int
    value: float
    metric: Metric
    saved: Saved
    excluded: Collection[str] = ()  # trials of the sweep that count no longer

    @property
    def tags(self) -> dict[str, str]:
        """The tags of the candidate's model version."""
        return {
            "hposvc.sweep": self.sweep,
            "hposvc.trial": self.trial,
            "hposvc.step": str(self.step),
            "hposvc.metric": self.metric.name,
            "hposvc.goal": self.metric.goal,
            "hposvc.value": repr(self.value),
        }


def candidate(sweep: str, state: SweepState) -> Candidate:
    """Return the best trial, with the checkpoint of the step at which it had its value.

    Raises:
        Unfit: there is no best trial, or it has no such checkpoint.
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
        message = (
            f"the best trial {trial.id} has no checkpoint of step {step}, where it got its value"
        )
        raise Unfit(f"{sweep}: {message}; see `checkpoints` in the spec")
    return Candidate(sweep, trial.id, step, value, metrics[0], saved, [*state.excluded])


@dataclass(frozen=True)
class Registry:
    """The model registry of an MLflow server; a lock admits one process of a home at a time."""

    tracker: Tracker  # open
    register: Register

    def promote(self, best: Candidate, run: str) -> Promotion:
        """Register the candidate if it is not yet, and move the alias to it if it passes the gate.

        Args:
            run: id of the MLflow run of the candidate's trial.

        Raises:
            Unfit: the candidate's checkpoint is damaged or gone.
        """
        with locked(self.tracker.home.path / "register.lock"):
            version = self._find_version(best, run) or self._create_version(best, run)
            return self._decide(best, version)

    def decided(self, best: Candidate, run: str) -> bool:
        """Whether the candidate was decided on before; later changes by users then stay."""
        version = self._find_version(best, run)
        return version is not None and self._decision_tag in self._tags(version)

    def _decide(self, best: Candidate, version: str) -> Promotion:
        name, alias, client = self.register.model, self.register.alias, self.tracker.client
        before = self._champion()
        moved, reason = self._judge(best, version, before)
        if moved:
            client.set_registered_model_alias(name, alias, version)
        verdict: Choice = "moved" if moved else "stays"
        client.set_model_version_tag(name, version, self._decision_tag, f"{verdict}: {reason}")
        return Promotion(best.sweep, best.trial, name, version, alias, before, verdict, reason)

    def _judge(self, best: Candidate, version: str, champion: str | None) -> tuple[bool, str]:
        """Return whether the alias moves to the candidate, and why."""
        if champion is None:
            return True, "no version had it"
        if champion == version:
            return False, "this version has it"
        tags, metric = self._tags(champion), best.metric
        trial = tags.get("hposvc.trial", "")
        if tags.get("hposvc.sweep") == best.sweep and trial in best.excluded:
            return True, f"version {champion} is of {trial}, which was excluded"
        objective = (tags.get("hposvc.metric"), tags.get("hposvc.goal"))
        try:
            champion_value = float(tags.get("hposvc.value", ""))
        except ValueError:
            return False, f"version {champion} has no tag hposvc.value to compare with"
        if objective != (metric.name, metric.goal):
            objectives = (
                f"{objective[1]} {objective[0]}, and here it is {metric.goal} {metric.name}"
            )
            return False, f"version {champion} was chosen by {objectives}"
        gain, gate = metric.loss(champion_value) - metric.loss(best.value), self.register.gate
        # 0.57 - 0.56 rounds to a little less than 0.01 but must count as 0.01.
        passes_gate = gain >= gate or math.isclose(gain, gate, rel_tol=1e-9)
        compared = (
            f"{metric.name} {best.value:.6g} after {champion_value:.6g} of version {champion}"
        )
        if math.isnan(champion_value) or (gain > 0 and passes_gate):
            return True, compared
        needed = f"an improvement of {gate:.6g}" if gate else "an improvement"
        return False, f"{compared} is not {needed}"

    @property
    def _decision_tag(self) -> str:
        return f"{DECIDED}.{self.register.alias}"

    def _champion(self) -> str | None:
        """Return the version that has the alias; None: no version."""
        query = f"name = '{self.register.model}'"
        for model in self.tracker.client.search_registered_models(query):
            version = model.aliases.get(self.register.alias)
            return None if version is None else str(version)
        return None

    def _tags(self, version: str) -> Mapping[str, str]:
        model_version = self.tracker.client.get_model_version(self.register.model, version)
        return dict(model_version.tags)

    def _find_version(self, best: Candidate, run: str) -> str | None:
        """Return the candidate's version; None: it has none."""
        token: str | None = None
        while True:
            page = self.tracker.client.search_model_versions(
                f"name = '{self.register.model}'", page_token=token
            )
            for version in page:
                same_tags = all(version.tags.get(name) == best.tags[name] for name in KEY)
                if same_tags and version.run_id == run:
                    return str(version.version)
            token = page.token
            if not token:
                return None

    def _create_version(self, best: Candidate, run: str) -> str:
        """Log the checkpoint as an artifact of the run, and create a version from it."""
        client, name = self.tracker.client, self.register.model
        artifact_path = f"checkpoint-{best.step}"
        with tempfile.TemporaryDirectory(prefix="hposvc-") as scratch:
            try:
                folder = verify(best.saved, lambda: Path(scratch))
            except (CheckpointDamaged, OSError) as error:
                message = f"the checkpoint of {best.trial} at step {best.step} can't be used"
                raise Unfit(f"{best.sweep}: {message}: {error}") from error
            client.log_artifacts(run, str(folder), artifact_path)
        if not client.search_registered_models(f"name = '{name}'"):
            client.create_registered_model(name)
        source = f"{client.get_run(run).info.artifact_uri}/{artifact_path}"
        version = client.create_model_version(name, source, run, best.tags)
        return str(version.version)


def promote(
    tracker: Tracker, register: Register, state: SweepState, runs: Mapping[str, str]
) -> Promotion:
    """Register the present best trial of a sweep, and decide on the alias.

    Args:
        runs: id of the MLflow run of each trial, and of the sweep's own run, which gets the
            decision as tags.

    Raises:
        Unfit: there is nothing to register.
        TrackerError: MLflow is out of reach.
    """
    best = candidate(tracker.sweep, state)
    if best.trial not in runs or PARENT not in runs:
        sweep = tracker.sweep
        message = f"MLflow has no run of {best.trial} yet; hposvc doctor {sweep} --fix creates it"
        raise Unfit(f"{sweep}: {message}")
    with mlflow_errors(tracker.uri):
        tracker.find()
        made = Registry(tracker, register).promote(best, runs[best.trial])
        for name, text in (
            ("hposvc.registered", made.version_name),
            ("hposvc.decision", str(made)),
        ):
            tracker.client.set_tag(runs[PARENT], name, text)
    return made


def log_best(tracker: Tracker, state: SweepState, runs: Mapping[str, str]) -> None:
    """Log the best trial's checkpoint as a model of its run, unless that is done or it is large."""
    try:
        best = candidate(tracker.sweep, state)
    except Unfit:
        return
    if best.trial not in runs or best.saved.size > MOST_LOGGED:
        return
    params = legal_entry(RunContent(dict(state.trials[best.trial].reported_params))).params
    with tempfile.TemporaryDirectory(prefix="hposvc-") as scratch:
        folder = verify(best.saved, lambda: Path(scratch))
        texts = {name: str(value) for name, value in params.items()}
        tracker.log_checkpoint(runs[best.trial], folder, texts, best.tags)


def promote_once(
    tracker: Tracker, register: Register, state: SweepState, runs: Mapping[str, str]
) -> str | None:
    """Promote the best trial of an ended sweep, only once, and return the outcome in a line.

    Looking at an old sweep again does not take back an alias that users moved meanwhile.

    Returns:
        The outcome; None: the trial was decided on before.
    """
    try:
        best = candidate(tracker.sweep, state)
        if best.trial in runs and Registry(tracker, register).decided(best, runs[best.trial]):
            return None
        return str(promote(tracker, register, state, runs))
    except Unfit as error:
        return f"nothing is registered: {error}"
