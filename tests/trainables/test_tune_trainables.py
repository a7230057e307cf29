"""Ray Tune's trainables, unchanged. If these fail, people must rewrite theirs to try ours."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from trainables import Worker
from trainables.load import bind

tune = pytest.importorskip("ray.tune")


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    """Redirect the files that Tune's classes would write to the user's home."""
    monkeypatch.setattr("ray.tune.trainable.trainable.DEFAULT_STORAGE_PATH", str(tmp_path / "ray"))
    return tmp_path / "ray"


def worker(**changes):
    return replace(Worker.alone(until=3), metrics=("loss",), **changes)


def reported(worker, trainable):
    bind(trainable, {"lr": 0.5})(worker)
    return [(report.step, report.metrics) for report in worker.reports]


def function(config):
    """As Tune's guide has it."""
    start = 1
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            start = json.loads((Path(folder) / "state.json").read_text())["epoch"] + 1
    for epoch in range(start, 4):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "state.json").write_text(json.dumps({"epoch": epoch}))
            tune.report(
                {"loss": config["lr"] / epoch, "eval": {"acc": 0.5}, "note": "fine"},
                checkpoint=tune.Checkpoint.from_directory(folder),
            )


class Class(tune.Trainable):
    """As Tune's guide has it."""

    def setup(self, config):
        self.lr, self.total = config["lr"], 0.0

    def step(self):
        self.total += self.lr
        return {"loss": self.total, "n": self.iteration, "done": self.total >= 10}

    def save_checkpoint(self, checkpoint_dir):
        (Path(checkpoint_dir) / "total").write_text(str(self.total))

    def load_checkpoint(self, checkpoint_dir):
        self.total = float((Path(checkpoint_dir) / "total").read_text())


def test_a_function_reports_numbers_and_checkpoints(results):
    first = worker(until=2)
    with pytest.raises(BaseException, match="last step of this order"):
        reported(first, function)
    assert [report.metrics for report in first.reports] == [
        {"loss": 0.5, "eval/acc": 0.5},
        {"loss": 0.25, "eval/acc": 0.5},
    ]
    second = worker(first=3, start=first.reports[-1].checkpoint)
    assert reported(second, function) == [(3, {"loss": 0.5 / 3, "eval/acc": 0.5})]


def test_a_function_may_import_tune_inside_and_asks_its_context():
    def train(config):
        from ray import tune

        assert tune.get_context().get_trial_id() == "alone"
        assert Path(tune.get_context().get_trial_dir()).is_dir()
        tune.report({"loss": 1.0})

    assert reported(worker(), train) == [(1, {"loss": 1.0})]


def test_what_a_function_returns_is_read_as_tune_reads_it():
    def train(config):
        from ray import tune

        assert tune.get_checkpoint() is None
        return {"loss": 1.0, "note": "fine"}

    assert reported(worker(), train) == [(3, {"loss": 1.0})]


def test_a_step_of_a_class_is_a_step_of_ours(results):
    first = worker(until=2)
    assert reported(first, Class) == [(1, {"loss": 0.5, "n": 0}), (2, {"loss": 1.0, "n": 1})]
    second = worker(first=3, start=first.reports[-1].checkpoint)
    assert reported(second, Class) == [(3, {"loss": 1.5, "n": 2})]
    assert not list(results.iterdir())


def test_a_class_that_is_done_ends_early_and_dicts_are_checkpoints_too():
    class Short(tune.Trainable):
        def step(self):
            return {"loss": 1.0, "done": True}

        def save_checkpoint(self, folder):
            return {"state": 7}

        def load_checkpoint(self, state):
            assert state == {"state": 7}

    first = worker()
    assert reported(first, Short) == [(1, {"loss": 1.0})]
    assert reported(worker(start=first.reports[0].checkpoint), Short) == [(1, {"loss": 1.0})]


def test_tune_is_not_loaded_for_those_who_do_not_bring_it():
    code = (
        "import sys; from trainables import Worker; from trainables.load import bind;"
        "bind(lambda config: 1.0, {})(Worker.alone()); sys.exit('ray.tune' in sys.modules)"
    )
    root = Path(__file__).parents[2]
    ended = subprocess.run([sys.executable, "-c", code], check=False, cwd=root, env=os.environ)
    assert ended.returncode == 0
