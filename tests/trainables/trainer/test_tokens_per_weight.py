"""A trial that ends after so many tokens for each weight of its model.

The task has 241 weights, and 70 tokens an epoch.
"""

from dataclasses import replace

import pytest
from simulated_sweeps import make_spec
from small import Small
from tasks import Deep
from torch import nn

from hposvc.errors import SpecError
from trainables import Training, Worker
from trainables.storage.checkpoint import Period
from trainables.trainer.fit import prepare
from trainables.vmapped.batch import Batch
from trainables.worker import LocalLink

WEIGHTS = sum(parameter.numel() for parameter in Deep().build_model().parameters())
MOST = 1000  # tokens, as fidelity says


def worker(folder, ratio=0.6, interval=50, **options):
    training = Training(tokens_per_weight=ratio, schedule="linear", clip=1.0)
    alone = Worker.alone(
        until=MOST, folder=folder, training=training, unit="token", interval=interval
    )
    return replace(alone, **options)


def steps(trial):
    return [report.step for report in trial.reports]


@pytest.mark.parametrize(("ratio", "last"), [(0.6, 145), (1.0, 241), (0.1, 24), (0.001, 1)])
def test_it_ends_after_as_many_tokens_as_its_weights_need(tmp_path, ratio, last):
    assert last == max(1, round(ratio * WEIGHTS))
    trial = worker(tmp_path, ratio)
    Deep().train(trial)
    assert steps(trial) == [*range(50, last, 50), last]
    tokens = trial.reports[-1].metrics["train/tokens"]
    assert last <= tokens < last + 25, "with the update that reaches them"


def test_a_wider_model_is_trained_longer(tmp_path):
    class Wide(Deep):
        def build_model(self):
            return nn.Sequential(nn.Linear(3, 40), nn.Tanh(), nn.Linear(40, 1))

    trial = worker(tmp_path / "wide")
    Wide().train(trial)
    assert steps(trial)[-1] == round(0.6 * 201)


def test_it_ends_where_the_fidelity_does_if_that_is_sooner(tmp_path):
    trial = worker(tmp_path, ratio=20)
    Deep().train(trial)
    assert steps(trial)[-1] == MOST


def test_its_end_has_a_checkpoint_whatever_the_period(tmp_path):
    for number, every in enumerate((1000, Period(seconds=3600))):
        trial = worker(tmp_path / f"{number}", every=every)
        Deep().train(trial)
        kept = [report.step for report in trial.reports if report.checkpoint is not None]
        assert kept == [145]


def test_its_schedule_ends_there(tmp_path):
    """Not where the longest trial ends, whose rate is still high then."""
    trial, longest = worker(tmp_path / "a"), worker(tmp_path / "b", ratio=20)
    Deep().train(trial)
    Deep().train(longest)
    rates = [
        next(report.metrics["train/lr"] for report in each.reports if report.step >= 145)
        for each in (trial, longest)
    ]
    assert rates[0] < 0.2 * Deep().lr
    assert rates[1] > 0.8 * Deep().lr


def learned(reports):
    names = ("train/loss", "val/loss", "train/tokens", "train/lr")
    return [{name: report.metrics[name] for name in names} for report in reports]


def test_it_goes_on_from_any_update_and_ends_at_the_same_step(tmp_path):
    once = worker(tmp_path / "once", every=Period(updates=1), link=LocalLink())
    Deep().train(once)
    starts = once.link.kept
    assert any(start.within for start in starts)
    assert starts[0].step == 0
    for number, start in enumerate(starts[::3]):
        rest = worker(tmp_path / f"{number}", first=start.step + 1, start=start)
        Deep().train(rest)
        assert steps(rest) == [step for step in steps(once) if step > start.step]
        assert learned(rest.reports) == learned(once.reports)[-len(rest.reports) :]


def test_an_order_that_ends_before_is_followed_by_one_to_the_end(tmp_path):
    first = worker(tmp_path, until=100)
    Deep().train(first)
    assert steps(first) == [50, 100]
    start = first.reports[-1].checkpoint
    second = worker(tmp_path, first=101, start=start, order=2)
    Deep().train(second)
    assert steps(second) == [145]


@pytest.mark.parametrize("unit", ["epoch", "update", "sample"])
def test_other_units_are_refused(tmp_path, unit):
    trial = worker(tmp_path, unit=unit)
    with pytest.raises(ValueError, match=f"tokens_per_weight is 0.6, and fidelity.unit is {unit}"):
        Deep().train(trial)


def test_without_it_a_trial_has_the_length_of_the_fidelity(tmp_path):
    trial = worker(tmp_path, ratio=None, interval=500)
    with prepare(Deep(), trial) as trainer:
        assert trainer.length.steps == MOST
    assert trial.milestones == ()


def test_trials_training_at_once_have_one_length(tmp_path):
    training = Training(tokens_per_weight=20.0, trials_per_process=2)
    trial = Worker.alone(until=2, folder=tmp_path, training=training)
    with Batch(2) as batch, pytest.raises(ValueError, match="tokens_per_weight"):
        batch.add(Small(), trial)


@pytest.mark.parametrize("ratio", [0, -1, "many"])
def test_a_ratio_is_a_number_above_0(ratio):
    with pytest.raises(SpecError, match=r"training\.tokens_per_weight"):
        make_spec(training={"tokens_per_weight": ratio}, fidelity={"unit": "token", "max": 100})
