"""The digits sweep by plain Ray Tune: ASHA, OptunaSearch, a class trainable with its DDP ranks.

Model, data, training loop and checkpoints are ours (trainables/trainer); only the control differs.
"""

import json
import os
import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import optuna
from gang import Gang
from ray import tune

from searchers import Space
from searchers.domains import Choice, Constant, Float, Int
from trainables.randomness import preserved
from trainables.trainer.fit import prepare
from trainables.training import Training
from trainables.worker import LocalLink, Worker
from trainables.zoo.digits import DigitsCNN

SEED, EPOCHS, RANKS = "_seed", "_epochs", "_ranks"  # in the config, beside the parameters


class Digits:
    """One trial on one rank."""

    def __init__(self, config: Mapping[str, Any], rank: int) -> None:
        params = {name: value for name, value in config.items() if not name.startswith("_")}
        number = zlib.crc32(json.dumps(params, sort_keys=True).encode())
        self.link = LocalLink()
        self.worker = Worker(
            rank=rank,
            world_size=config[RANKS],
            first=1,
            until=config[EPOCHS],
            total=config[EPOCHS],
            seed=config[SEED] * 1_000_003 + number,
            training=Training(strategy="ddp"),
            params=params,
            trial=f"{number:08x}",
            order=1,
            metrics=(),
            start=None,
            checkpoints=Path(os.environ["HPOSVC_HOME"]) / "checkpoints",
            every=1,
            milestones=(),
            link=self.link,
            gpu=False,
        )
        with preserved():
            # For good: what it sets while it trains is what is set anyhow.
            self.session = ExitStack().enter_context(prepare(DigitsCNN(**params), self.worker))

    def step(self, number: int) -> dict[str, float]:
        """One epoch, as an order of ours does it."""
        with preserved():
            tallies = self.session.train_steps(number, number)
            self.session.report(number, {**tallies, **self.session.evaluate()})
        return self.link.reports[-1].metrics


class DigitsGang(Gang):
    """The same as a class trainable."""

    work = Digits


class Reached(tune.Stopper):
    """Ends the experiment once a result meets the target."""

    def __init__(self, metric: str, target: float) -> None:
        self.metric, self.target, self.reached = metric, target, False

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.reached = self.reached or result[self.metric] >= self.target
        return self.reached

    def stop_all(self) -> bool:
        return self.reached


def suggest(space: Space, trial: optuna.Trial) -> dict[str, Any]:
    """A space in Optuna's define-by-run form; returns the constants, as OptunaSearch wants them."""

    def choose(name: str) -> Any:
        domain = space[name]
        if isinstance(domain, Float):
            return trial.suggest_float(name, domain.low, domain.high, log=domain.log)
        if isinstance(domain, Int):
            return trial.suggest_int(name, domain.low, domain.high, log=domain.log)
        assert isinstance(domain, Choice)
        return trial.suggest_categorical(name, domain.values)

    space.build(choose)
    return {name: each.value for name, each in space.items() if isinstance(each, Constant)}
