"""Fits survive JSON exactly, are found by model, and are refused if invalid; rows to fit on."""

import json

import numpy as np
import pytest

from searchers.gp.fits import MODELS, Fit, best_and_random, last_fit
from searchers.gp.model import Hyperparameters
from searchers.searcher import Observation

FIT = Fit(Hyperparameters((0.1, 1.0 / 3.0), noise=1e-5, scale=2.0 / 7.0), trials=17)


def with_note(note):
    return Observation("0", {}, note)


def test_a_fit_survives_json_exactly():
    note = json.loads(json.dumps({"model": "tail", "fits": {"loss": FIT.note()}}))
    assert last_fit([with_note(note)], MODELS[0], 2, "loss") == FIT


def test_the_newest_fit_of_the_same_model_counts():
    older = {"model": "tail", "fits": {"loss": {**FIT.note(), "trials": 5}}}
    newer = {"model": "tail", "fits": {"loss": FIT.note()}}
    other = {"model": "power", "fits": {"loss": {**FIT.note(), "trials": 30}}}
    history = [with_note(note) for note in (older, newer, other, {"source": "start"}, {})]
    assert last_fit(history, MODELS[0], 2, "loss") == FIT
    assert last_fit(history[:1], MODELS[1], 2, "loss") is None


def test_each_outcome_has_its_own_fit():
    """Otherwise the fit of the losses would start from the lengthscales of failures."""
    older = {"model": "tail", "fits": {"failure": {**FIT.note(), "trials": 5}}}
    newer = {"model": "tail", "fits": {"loss": FIT.note()}}
    history = [with_note(note) for note in (older, newer)]
    assert last_fit(history, MODELS[0], 2, "loss") == FIT
    assert last_fit(history, MODELS[0], 2, "failure").trials == 5
    assert last_fit(history, MODELS[0], 2, "cost") is None


@pytest.mark.parametrize(
    "change",
    [
        {"lengthscales": [1.0, -1.0]},
        {"lengthscales": [1.0, "long"]},
        {"noise": float("nan")},
        {"trials": "many"},
    ],
)
def test_a_note_that_makes_no_sense_here_is_as_good_as_none(change):
    note = {"model": "tail", "fits": {"loss": {**FIT.note(), **change}}}
    assert last_fit([with_note(note)], MODELS[0], 2, "loss") is None


def test_any_news_makes_a_fit_due_below_forty_trials_and_five_percent_above():
    early = Fit(FIT.hyperparameters, trials=20)
    assert [early.is_due(trials) for trials in (19, 20, 21)] == [True, False, True]
    late = Fit(FIT.hyperparameters, trials=100)
    assert [late.is_due(trials) for trials in (99, 100, 104, 105)] == [True, False, False, True]


def test_rows_to_fit_on_are_the_best_half_and_a_draw_from_the_rest():
    output_N = np.random.default_rng(0).permutation(100).astype(float)
    index = best_and_random(output_N, 20, np.random.default_rng(1))
    assert len(set(index.tolist())) == 20
    assert set(range(10)) <= set(output_N[index])
    np.testing.assert_array_equal(best_and_random(output_N, 100, None), np.arange(100))
