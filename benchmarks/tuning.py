"""Ray Tune at its best: the settings that we know to make it fast, and a log of when what happened.

- No loggers and no progress tables: writing CSV, JSON and TensorBoard files halves its rate.
- Actors are reused: without it a trial costs an actor's start.
- The experiment's snapshot, which is written whole every 10 s or more, is put off for ever.
- As many pending trials as slots: with a custom searcher it would otherwise start them in turn.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray import tune

FAST = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
}


@dataclass
class Diary(tune.Callback):
    """When each trial ended, in what way, and what each of its results was."""

    ends: list[float] = field(default_factory=list)
    results: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)  # ended | failed, by trial

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self.results.append((time.time(), trial.trial_id, result))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.ends.append(time.time())
        self.outcomes[trial.trial_id] = "ended"

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.outcomes[trial.trial_id] = "failed"


def fit(trainable: Any, space: Mapping[str, Any], config: tune.TuneConfig, **run: Any) -> Diary:
    """Run an experiment with the fast settings.

    Args:
        run: more of `tune.RunConfig`, such as `stop`.
    """
    pending = str(config.max_concurrent_trials)
    os.environ.update({**FAST, "TUNE_MAX_PENDING_TRIALS_PG": pending})
    diary = Diary()
    tuner = tune.Tuner(
        trainable,
        param_space=dict(space),
        tune_config=config,
        run_config=tune.RunConfig(
            storage_path=str(Path(os.environ["HPOSVC_HOME"]) / "tune"),
            verbose=0,
            callbacks=[diary],
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            **run,
        ),
    )
    tuner.fit()
    return diary
