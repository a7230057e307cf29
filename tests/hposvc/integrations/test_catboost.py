"""CatBoost in real sweeps, by the line of docs/how-to/frameworks.md."""

from functools import partial

import framework_sweeps
import numpy as np
import pytest
from catboost import CatBoostClassifier, Pool

import hposvc

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 5))
Y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * RNG.normal(size=300) > 0).astype(int)
ROUNDS, EVERY = 18, 2
METRIC = "validation/Logloss"
sweep = partial(framework_sweeps.sweep, metric=METRIC, rates=(1e-3, 0.5))


class Count:
    """Writes down the rounds of boosting, and may break one."""

    def __init__(self, count):
        self.count = count

    def after_iteration(self, info):
        self.count(info.iteration)
        return True


def boost(rate, count=lambda rounds: None):
    model = CatBoostClassifier(
        iterations=ROUNDS,
        learning_rate=rate,
        depth=2,
        thread_count=1,
        verbose=False,
        allow_writing_files=False,
        use_best_model=False,
    )
    held_out = Pool(X[200:], Y[200:])
    return hposvc.catboost.fit(
        model,
        Pool(X[:200], Y[:200]),
        eval_set=held_out,
        every=EVERY,
        callbacks=[Count(count)],
    )


@pytest.mark.parametrize("mode", ["stop", "promote"])
def test_trials_stop_at_rungs_with_the_values_of_a_whole_training(mode, tmp_path, capsys):
    rounds = tmp_path / "rounds"

    def train(config):
        def count(number):
            with rounds.open("a") as lines:
                lines.write(f"{config['rate']} {number}\n")

        boost(config["rate"], count)

    result = sweep(
        train,
        tmp_path / "home",
        fidelity={"unit": "two rounds", "max": ROUNDS // EVERY},
        scheduler={"type": "asha", "mode": mode},
        trials={"max": 9},
    )
    trials = result.trials
    assert {*trials["state"]} == {"COMPLETED", "STOPPED"}
    assert (max(trials["attempts"]) > 1) is (mode == "promote")
    lines = rounds.read_text().splitlines()
    for rate, step, state in zip(trials["rate"], trials["step"], trials["state"], strict=True):
        counted = max(int(line.split()[1]) for line in lines if line.startswith(f"{rate} "))
        # A report that ends the training keeps its round from the callbacks behind it.
        assert counted == step * EVERY - (state == "STOPPED")
    longest = trials[trials["state"] == "COMPLETED"].iloc[-1]
    assert boost(longest["rate"]).tree_count_ == ROUNDS  # outside a sweep: printed
    printed, steps = capsys.readouterr().err, ROUNDS // EVERY
    framework_sweeps.check_curves(result, longest["trial"], printed, (METRIC,), steps)


def test_a_failed_training_begins_anew(tmp_path):
    def train(config):
        boost(config["rate"], framework_sweeps.break_once(tmp_path, 11))

    result = sweep(train, tmp_path / "home", failure={"user_retries": 1})
    assert [*result.trials["attempts"]] == [2]
    assert [*result.trials["state"]] == ["COMPLETED"]
    assert [*result.curves["step"]] == [*range(1, ROUNDS // EVERY + 1)]
