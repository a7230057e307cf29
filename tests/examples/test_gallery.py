"""The examples that are folders: a spec and its program, on which one step is trained here."""

import runpy
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from hposvc import spec as specs
from trainables import Worker, load
from trainables.memory_estimation.forecast import adapted_to_ranks
from trainables.stop_signals import StopTrial

EXAMPLES = Path(__file__).parents[2] / "examples"
FEW = {"sft_lora": {"reading": 1}}  # updates of the base


@pytest.fixture(scope="module")
def program():
    """The names of an example's program."""
    return lambda name: runpy.run_path(str(EXAMPLES / name / "train.py"))


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, marks=[pytest.mark.long] * (file.parent.name in FEW))
        for file in sorted(EXAMPLES.glob("*/sweep.yaml"))
        if file.parent.name != "grpo"  # run whole by tests/e2e/test_examples.py
    ],
    ids=lambda file: file.parent.name,
)
def test_the_default_trains(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    spec = specs.check(file, {})
    middle = spec.space.decode(np.full(len(spec.space.searched), 0.5))
    params = middle | dict(*spec.initial) | FEW.get(file.parent.name, {})
    training = adapted_to_ranks(load.training_of(spec.training, params), 1)
    worker = Worker.alone(params, training=training, unit=spec.fidelity.unit)
    with suppress(StopTrial):  # a framework would go on
        load.bind(load.resolve(spec.trainable), params)(worker)
    assert np.isfinite(worker.reports[0].metrics[spec.metric.name])


def test_ppo_learns_to_balance(program):
    params = {"lr": 3e-3, "gamma": 0.99, "lambda": 0.95, "clip": 0.2, "epochs": 8, "entropy": 0.01}
    worker = Worker.alone(params, until=5)
    program("ppo")["train"](params, worker)
    first, *_, last = [report.metrics["return"] for report in worker.reports]
    assert first < 60 < 120 < last


def test_a_sampler_that_knows_the_noise_draws_the_picture(program):
    names = program("diffusion")
    kept_K = names["kept_share"]("cosine", 50)
    picture_P = torch.linspace(-1, 1, 64)

    def noise(x_NP, level_N):
        kept = kept_K[round(float(level_N[0]) * len(kept_K))]
        return (x_NP - kept.sqrt() * picture_P) / (1 - kept).sqrt()

    torch.manual_seed(0)
    drawn_NP = names["draw"](noise, kept_K)
    torch.testing.assert_close(drawn_NP, picture_P.expand_as(drawn_NP), atol=1e-3, rtol=0)


def test_the_distance_of_pictures_is_that_of_their_gaussians(program):
    frechet = program("diffusion")["frechet"]
    x_NP = np.random.default_rng(0).normal(size=(400, 64)) * np.linspace(0.1, 3, 64)
    assert abs(frechet(x_NP, x_NP, x_NP)) < 1e-3
    shift_P = np.zeros(64)
    shift_P[-1] = 2  # nearly the first component
    assert 3.5 < frechet(x_NP + shift_P, x_NP, x_NP) < 4.01
    assert frechet(2 * x_NP, x_NP, x_NP) > 10


@pytest.mark.parametrize("noise", ["linear", "cosine"])
def test_noise_grows_until_little_is_left(program, noise):
    kept_K = program("diffusion")["kept_share"](noise, 50)
    assert kept_K[0] > 0.9
    assert (kept_K.diff() < 0).all()
    assert 0 < kept_K[-1] < 0.01


def test_nodes_are_mixed_with_their_neighbours_alone(program):
    names = program("graph")
    x_NF = torch.tensor([[0.0], [0.1], [1.0], [1.1]])
    mixing_NN = names["neighbours"](x_NF, 2).to_dense()  # each with its nearest other
    torch.testing.assert_close(mixing_NN, torch.block_diag(*[torch.full((2, 2), 0.5)] * 2))


def test_labels_are_known_of_five_nodes_a_class(program):
    label_N = torch.arange(10).repeat(30)
    known, val, test = program("graph")["split"](label_N)
    assert label_N[known].bincount().tolist() == [5] * 10
    assert sorted(torch.cat([known, val, test]).tolist()) == list(range(300))


def test_a_quantile_is_charged_for_its_side(program):
    names = program("forecast")
    task = names["Forecast"](history=2)
    before, after = torch.zeros(1, 2), torch.ones(1, names["AHEAD"])
    outputs = torch.zeros(1, names["AHEAD"], 3)
    losses = task.compute_losses(lambda _: outputs, (before, after))
    torch.testing.assert_close(losses[0, 0], torch.tensor([0.1, 0.5, 0.9]))
    losses = task.compute_losses(lambda _: outputs + 2, (before, after))
    torch.testing.assert_close(losses[0, 0], torch.tensor([0.9, 0.5, 0.1]))


def test_forecasts_of_the_held_out_part_begin_where_training_ends(program):
    names = program("forecast")
    value_N = names["series"]()
    data = names["Forecast"](history=12).load_data()
    before, after = data.validation.columns
    torch.testing.assert_close(after[:, 0], value_N[3000 : 3000 + len(after)])
    assert before.shape[1:] == (12,)


@pytest.mark.long
def test_an_answer_is_rewarded_if_it_is_in_order(program):
    reward = program("grpo")["is_sorted"]
    answers = ["1 2 3 3", "1 2 3", "3 1 2 3", ""]
    assert reward(["3 1 3 2 >"] * 4, answers) == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.long
def test_the_loss_counts_on_docstrings_alone(program):
    text_NT, counts_NT = program("sft_lora")["pairs"]()
    for text_T, counts_T in zip(text_NT[:50], counts_NT[:50], strict=True):
        head, answer = text_T[~counts_T], text_T[counts_T]
        assert bytes(head[head > 0].tolist()).endswith(b":\n")
        assert answer[-1] == 1  # the end
        assert (answer[:-1] >= 32).all()
