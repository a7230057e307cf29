"""Metrics over all predictions. If these fail, an AUC or a BLEU depends on the number of ranks.

Axes: N validation samples, B samples of a batch, T tokens of a sample.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score
from small import Small, worker
from tasks import Deep, curves, learned, refusals
from torch import Tensor, nn

from trainables import Training, Worker
from trainables.data import Batch, Data, Tensors
from trainables.task import Task
from trainables.vmapped.batch import Batch as Trials
from trainables.worker import Diverged

GATHERED: list[dict[str, Tensor]] = []  # what score got, in this process
MEANS: list[dict[str, float]] = []  # what summarize got, in this process


@dataclass(frozen=True)
class Scored(Deep):
    """A task that predicts what the samples say, whatever the model."""

    samples: int = 7

    def load_data(self) -> Data:
        data = super().load_data()
        assert isinstance(data.validation, Tensors)
        columns = (column[: self.samples] for column in data.validation.columns)
        return Data(data.train, Tensors(*columns))

    def predict(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        x_BTF, y_BT, counts_BT = batch
        model(x_BTF)
        return {"x": x_BTF, "sum": y_BT[:, 0], "counts": counts_BT}

    def score(self, predictions: Mapping[str, Tensor]) -> Mapping[str, float]:
        GATHERED.append(dict(predictions))
        torch.rand(())
        positive_N = predictions["sum"] > predictions["sum"].median()
        return {
            "auc": roc_auc_score(positive_N, predictions["x"][:, 0, 0]),
            "f1/macro": f1_score(positive_N, predictions["x"][:, 0, 1] > 0, average="macro"),
            "tenth": 0.1,
            "undefined": math.nan,
        }

    def summarize(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        MEANS.append(dict(metrics))
        return {}


def scored(rank: int, task: Task, trainings: list[Training], ranks: int) -> list[Any]:
    """Return the last scores of each training, and what rank 0 got to compute them."""
    results = []
    for training in trainings:
        GATHERED.clear()
        MEANS.clear()
        curves(rank, task, [training], ranks, 2)
        values = {name: value for name, value in MEANS[-1].items() if name.startswith("val/")}
        del values["val/loss"]
        results.append((values, [*GATHERED]))
    return results


def alone(task: Task) -> dict[str, float]:
    (result,) = scored(0, task, [Training(precision="64-true")], 1)
    return result[0]


def ddp(**options: Any) -> Training:
    return Training("ddp", "64-true", **options)


PIPELINE = Training("pipeline", accumulate=2)
CASES = [
    pytest.param(2, 7, [ddp(), ddp(accumulate=2, ema=0.9), Training("tensor", "64-true")]),
    pytest.param(
        2, 7, [Training("zero1", "64-true"), Training("fsdp", "64-true")], marks=pytest.mark.long
    ),
    pytest.param(3, 7, [ddp(), ddp(accumulate=2), Training("local_sgd", "64-true")]),
    pytest.param(3, 2, [ddp(), Training("fsdp", "64-true")], marks=pytest.mark.long),
    pytest.param(4, 7, [Training("fsdp", "64-true", tensor_parallel=2)], marks=pytest.mark.long),
]


@pytest.mark.parametrize(("ranks", "samples", "trainings"), CASES)
def test_each_row_is_scored_once_in_the_samples_order_on_any_ranks(
    on_ranks: Callable[..., list[list[Any]]], ranks, samples, trainings
):
    task = Scored(samples=samples)
    expected = alone(task)
    columns = task.load_data().validation.columns
    for rank, results in enumerate(on_ranks(scored, task, trainings, ranks, ranks=ranks)):
        for values, gathered in results:
            assert values == pytest.approx(expected, abs=0, nan_ok=True)  # the same bits
            assert len(gathered) == (2 if rank == 0 else 0)
            for rows in gathered:
                assert torch.equal(rows["x"], columns[0])
                assert torch.equal(rows["counts"], columns[2])


@pytest.mark.full
@pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs DeepSpeed")
def test_deepspeed_scores_too(on_two_ranks: Callable[..., list[list[Any]]]):
    trainings = [Training("deepspeed", zero_stage=stage) for stage in (2, 3)]
    expected = learned(Scored(), Training(), 2)[-1]["val/auc"]
    for results in on_two_ranks(scored, Scored(), trainings, 2):
        assert [values["val/auc"] for values, _ in results] == [expected] * 2


def test_scores_are_reported_beside_means_and_nan_as_nan():
    (report, _) = learned(Scored(), Training(), 2)
    assert {"val/loss", "val/auc", "val/f1/macro", "val/tenth", "val/undefined"} <= report.keys()
    assert report["val/tenth"] == 0.1
    assert math.isnan(report["val/undefined"])


def test_scoring_changes_no_bit_of_training():
    plain, scores = (learned(task, Training()) for task in (Deep(), Scored()))
    assert [r["train/loss"] for r in plain] == [r["train/loss"] for r in scores]


@dataclass(frozen=True)
class Perplexed(Deep):
    """A task whose samples have 1 to 5 tokens, and whose ranks have unlike numbers of both."""

    def summarize(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        return {"val/perplexity": math.exp(metrics["val/loss"])}


def test_perplexity_is_that_of_the_mean_over_all_tokens_of_all_ranks(
    on_ranks: Callable[..., list[list[list[dict[str, float]]]]],
):
    trainings = [ddp(), ddp(accumulate=2)]
    both = on_ranks(curves, Perplexed(), trainings, 3, 2, ranks=3)[0]
    expected = learned(Perplexed(), ddp(), 2)
    for reports in both:
        for report, other in zip(reports, expected, strict=True):
            assert report["val/perplexity"] == pytest.approx(other["val/perplexity"], rel=1e-12)


@dataclass(frozen=True)
class Numbers(Deep):
    """A task that predicts the model's outputs in the format of its weights."""

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        return {}

    def predict(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        return {"scores": model(batch[0])[:, 0, 0], "labels": batch[1][:, 0] > 0}

    def score(self, predictions: Mapping[str, Tensor]) -> Mapping[str, float]:
        GATHERED.append(dict(predictions))
        return {"auc": roc_auc_score(predictions["labels"], predictions["scores"])}


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_predictions_in_16_bits_are_numbers_for_numpy_and_need_no_means(precision):
    (report,) = learned(Numbers(), Training(precision=precision), 1)
    assert 0.0 <= report["val/auc"] <= 1.0
    assert "val/loss" not in report
    assert GATHERED[-1]["scores"].dtype == torch.float32


@pytest.mark.full
def test_predictions_are_computed_uncompiled_with_averaged_weights():
    """Text generated token by token has another shape at each step."""
    states = []

    @dataclass(frozen=True)
    class Looking(Numbers):
        def predict(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
            eager = torch._dynamo.eval_frame._stance.stance == "force_eager"
            states.append((eager, model.training, torch.is_grad_enabled()))
            return super().predict(model, batch)

    learned(Looking(), Training(compile="aot_eager", ema=0.9), 1)
    assert set(states) == {(True, False, False)}


def test_predictions_that_are_not_finite_and_cannot_be_scored_mean_that_the_trial_diverged():
    with pytest.raises(Diverged, match=r"predictions are not finite: score raised ValueError.*NaN"):
        learned(Numbers(lr=1e30), Training(), 3)


@dataclass(frozen=True)
class Returning(Deep):
    """A task that predicts, and scores, what the test says."""

    wrong: str = ""

    def predict(self, model: nn.Module, batch: Batch) -> Any:
        x_BTF = batch[0]
        return {
            "mean": {"scores": x_BTF.mean()},
            "rows": {"scores": x_BTF[1:]},
            "list": {"scores": x_BTF[:, 0, 0].tolist()},
            "nameless": x_BTF.mean(),
            "lengths": {"scores": torch.zeros(len(x_BTF), len(x_BTF))},
            "names": {f"{len(x_BTF)}": x_BTF},
        }.get(self.wrong, {"scores": x_BTF})

    def score(self, predictions: Mapping[str, Tensor]) -> Any:
        if self.wrong == "error":
            raise ZeroDivisionError("no positives")
        results = {"number": {"auc": "high"}, "bare": 0.5, "taken": {"loss": 0.5}}
        return results.get(self.wrong, {"auc": 0.5})


REFUSED = {
    "mean": r"Returning.predict returned a Tensor \(\) as 'scores' for 4 samples; return "
    "tensors by name, with a row for each sample, not averaged",
    "rows": r"predict returned a Tensor \(3, 5, 3\) as 'scores' for 4 samples",
    "list": "predict returned a list as 'scores' for 4 samples",
    "nameless": r"predict returned a Tensor \(\) as '' for 4 samples",
    "lengths": r"predict returned rows of a batch that do not go .*padded to one length",
    "names": r"predict returned rows of a batch that do not go .*'4'.*the same names",
    "error": "no positives",
    "number": r"score: metric 'auc' is 'high' \(str\); give a real number",
    "bare": "score: metrics is float; give a dict of name: number",
    "taken": "score: evaluate returns 'loss' too; choose another name",
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_cannot_be_scored_is_refused_with_what_to_return(wrong):
    kind = ZeroDivisionError if wrong == "error" else ValueError
    with pytest.raises(kind, match=REFUSED[wrong]):
        learned(Returning(wrong=wrong), Training(), 1)


def test_an_error_of_score_on_rank_0_is_raised_on_all_ranks(
    on_two_ranks: Callable[..., list[list[str]]],
):
    """The others would wait for it until a collective times out."""
    runs = [(Returning(wrong=wrong), Training("ddp")) for wrong in ("lengths", "taken", "number")]
    ours, theirs = on_two_ranks(refusals, runs, ValueError)
    assert ours == theirs
    assert all(text.startswith("Returning.") for text in ours)


@dataclass(frozen=True)
class OnlyScore(Deep):
    def score(self, predictions: Mapping[str, Tensor]) -> Mapping[str, float]:
        return {}


@dataclass(frozen=True)
class OnlyPredict(Deep):
    def predict(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        return {}


@dataclass(frozen=True)
class SmallScored(Small):
    predict, score = Returning.predict, Returning.score


@pytest.mark.parametrize(("task", "missing"), [(OnlyScore(), "predict"), (OnlyPredict(), "score")])
def test_half_of_the_pair_is_refused_before_training(task, missing):
    with pytest.raises(ValueError, match=rf"{type(task).__name__} has no {missing}; score gets"):
        task.train(Worker.alone())


def test_where_only_means_can_be_computed_it_is_refused_before_training():
    pipeline = replace(Worker.alone(), training=PIPELINE, world_size=2)
    with pytest.raises(ValueError, match=r"Returning.predict is not called with strategy: pipe"):
        Returning().train(pipeline)
    with Trials(2) as trials, pytest.raises(ValueError, match="with trials_per_process above 1"):
        trials.add(SmallScored(), worker(until=1, seed=1))
