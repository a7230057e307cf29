"""Keras in real sweeps, by the line of docs/how-to/frameworks.md."""

import json
import os
from functools import partial

import framework_sweeps
import numpy as np
import pages
import pytest

import hposvc

os.environ.setdefault("KERAS_BACKEND", "torch")
BLOCK = pages.block("how-to/frameworks.md", "import keras")
X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = X.sum(1)
EPOCHS = 4
sweep = partial(framework_sweeps.sweep, metric="val_loss", rates=(1e-3, 0.03))


def build(rate):
    import keras  # it takes seconds

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate, momentum=0.9), "mse")
    return model


def fit(rate, count=lambda epoch: None, epochs=EPOCHS, **options):
    import keras

    build(rate).fit(
        X,
        Y,
        batch_size=8,
        epochs=epochs,
        shuffle=False,
        validation_data=(X, Y),
        verbose=0,
        callbacks=[
            keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: count(epoch)),
            hposvc.keras.Report(**options),
        ],
    )


@pytest.fixture(scope="module", params=[True, False], ids=["saves", "saves-nothing"])
def swept(request, tmp_path_factory):
    """A result of ASHA, the epochs that its trials began, and whether they saved checkpoints."""
    folder, train = tmp_path_factory.mktemp("keras"), partial(fit, save=request.param)
    swept = framework_sweeps.swept(folder, "val_loss", (1e-3, 0.03), train, EPOCHS)
    return *swept, request.param


def test_trials_stop_at_rungs_and_repeat_an_epoch_only_without_checkpoints(swept):
    result, epochs, saves = swept
    framework_sweeps.check_rungs(result, epochs, range, repeats=not saves)


def test_the_values_are_those_of_a_training_without_pauses(swept, capsys):
    result, _, _ = swept
    trial = framework_sweeps.longest(result)
    fit(trial["rate"])  # outside a sweep: printed
    printed = capsys.readouterr().err
    framework_sweeps.check_curves(result, trial["trial"], printed, ("loss", "val_loss"), EPOCHS)


def test_the_checkpoint_is_the_weights(swept):
    best = swept[0].best
    if not swept[2]:
        assert best.checkpoint is None
        return
    model = build(best.params["rate"])
    model.load_weights(best.checkpoint / hposvc.keras.FILE)
    assert model.evaluate(X, Y, verbose=0) == pytest.approx(best.value, rel=1e-5)


def test_a_failed_training_goes_on_from_its_last_epoch(tmp_path):
    def train(config):
        fit(config["rate"], framework_sweeps.break_once(tmp_path, 2))

    result = sweep(train, tmp_path / "home", failure={"user_retries": 1})
    assert [*result.trials["attempts"]] == [2]
    assert [*result.curves["step"]] == [*range(1, EPOCHS + 1)]
    assert framework_sweeps.numbers(tmp_path) == [0, 1, 2, 2, 3]


@pytest.mark.full
def test_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(BLOCK, "how-to/frameworks.md", "exec"), names)
    value = names["result"].best.value
    assert value > 0.3
    _, accuracy = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert accuracy == pytest.approx(value)
