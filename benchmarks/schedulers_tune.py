"""Ray Tune's own schedulers on learning curves that a trivial trainable replays.

Configurations come from its built-in generator, in our order: HyperBand never halves under another
searcher, and PBT refuses one. As many trials run at once as the Ray here has CPUs.
"""

import logging
import os
import random
import sys
from pathlib import Path
from typing import Any

import ray
from apart import Figures, answer
from curves import BUDGET, EPOCHS, NOISE, Seen, curve, figures, loss, points, target
from ray import tune
from ray.tune import schedulers
from ray.tune.search import BasicVariantGenerator
from tuning import FAST, Diary

SLOTS = 4


class Replay(tune.Trainable):
    """One trial; its state is its iteration, which Tune keeps."""

    def setup(self, config: dict[str, Any]) -> None:
        self.params = config

    def step(self) -> dict[str, float]:
        value, _ = curve(self.params, self.iteration + 1)
        return {**value, "true": loss(self.params, self.iteration + 1)}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        (Path(checkpoint_dir) / "iteration").write_text(str(self.iteration))

    def load_checkpoint(self, checkpoint: Any) -> None:
        pass

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.params = new_config
        return True


def scheduler(name: str) -> Any:
    """Tune's counterpart of ours, with the same options."""
    if name == "asha":
        return schedulers.ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=3)
    if name == "hyperband":
        return schedulers.HyperBandScheduler(max_t=EPOCHS, reduction_factor=3)
    if name == "median":
        return schedulers.MedianStoppingRule(
            time_attr="training_iteration", grace_period=1, min_samples_required=5
        )
    return schedulers.PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=3,
        quantile_fraction=0.2,
        hyperparam_mutations={"lr": tune.loguniform(1e-4, 1.0), "decay": tune.uniform(0.0, 0.6)},
    )


class Budget(tune.Stopper):
    """Trials end at their last epoch, and all of them when the budget is spent."""

    def __init__(self) -> None:
        self.left = BUDGET

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.left -= 1
        return bool(result["training_iteration"] >= EPOCHS)

    def stop_all(self) -> bool:
        return self.left <= 0


def race(rule: str, family: str, trials: int, seeds: list[int]) -> Figures:
    """A run a seed, one after the other on one Ray."""
    os.environ.update({**FAST, "TUNE_MAX_PENDING_TRIALS_PG": str(SLOTS)})
    ray.init(num_cpus=SLOTS, include_dashboard=False, logging_level=logging.ERROR)
    runs = [_run(rule, family, trials, seed) for seed in seeds]
    ray.shutdown()
    return {"runs": runs}


def _run(rule: str, family: str, trials: int, seed: int) -> dict[str, float | None]:
    names = ["lr", "decay"] if family in NOISE else ["row"]
    diary = Diary()
    random.seed(seed)  # PBT draws from here
    tuner = tune.Tuner(
        Replay,
        param_space={"family": family, **{each: tune.uniform(0, 1) for each in names}},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=trials,
            scheduler=scheduler(rule),
            search_alg=BasicVariantGenerator(points_to_evaluate=points(family, seed, trials)),
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            storage_path=str(Path(os.environ["HPOSVC_HOME"]) / "tune"),
            name=f"{rule}-{family}-{seed}",
            verbose=0,
            callbacks=[diary],
            stop=Budget(),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )
    aborted = False
    try:
        tuner.fit()
    except Exception as error:  # noqa: BLE001 - HyperBand: "... without setting `trial_dir_name`"
        print(f"seed {seed}: {type(error).__name__}: {error}", file=sys.stderr)
        aborted = True
    reports = [Seen(trial, result["loss"], result["true"]) for _, trial, result in diary.results]
    return {**figures(reports, target(family, seed)), "aborted": float(aborted)}


if __name__ == "__main__":
    answer({"race": race})
