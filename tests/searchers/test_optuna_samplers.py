import logging
import warnings

import numpy as np
import pytest

from searchers import Choice, Float, Int, Space, create


def told(searcher, loss, trials, batch=1):
    for _ in range(trials // batch):
        for trial in searcher.ask(batch):
            searcher.tell(trial, loss(trial.params))
    return searcher


def test_tpe_finds_a_better_valley_than_random_search():
    space = Space(
        {
            "lr": Float(1e-6, 1.0, log=True),
            "width": Int(8, 512, log=True),
            "depth": Int(1, 9),
            "opt": Choice(("a", "b", "c", "d")),
        }
    )

    def loss(params):
        far = abs(np.log10(params["lr"]) + 3) + abs(np.log2(params["width"]) - 6)
        return far + 0.3 * abs(params["depth"] - 4) + (params["opt"] != "c")

    def mean_best(method):
        return np.mean([told(create(method, space, seed=s), loss, 60).best.value for s in range(3)])

    assert mean_best("tpe") < 0.75 * mean_best("random")


def test_pending_trials_keep_parallel_proposals_apart():
    space = Space({"x": Float(0.0, 1.0)})
    searcher = told(create("tpe", space, seed=0), lambda params: (params["x"] - 0.5) ** 2, 30)
    spread = np.ptp([trial.params["x"] for trial in searcher.ask(12)])
    assert spread > 0.1


@pytest.mark.parametrize("seed", range(3))
def test_failures_are_avoided_without_a_penalty_of_some_scale(seed):
    space = Space({"x": Float(0.0, 1.0), "kind": Choice(("a", "b"))})
    searcher = create("tpe", space, seed=seed)
    for _ in range(60):
        trial = searcher.ask()
        failed = trial.params["kind"] == "b"
        searcher.tell(trial, None if failed else 1e9 + trial.params["x"], reason="oom")
    late = [seen.state for seen in searcher.history[30:]]
    assert late.count("failed") < 10


def test_the_first_trials_are_random_and_the_note_says_so(digits):
    searcher = told(create("tpe", digits, startup=5), lambda params: params["lr"], 8)
    assert [seen.note["source"] for seen in searcher.history] == ["random"] * 5 + ["tpe"] * 3


def test_optuna_is_silent(digits, caplog):
    with caplog.at_level(logging.INFO), warnings.catch_warnings():
        warnings.simplefilter("error")
        told(create("tpe", digits, startup=2), lambda params: params["lr"], 6)
    assert caplog.records == []


@pytest.mark.parametrize("option", ["startup", "candidates"])
def test_options_below_one_are_refused(option, digits):
    with pytest.raises(ValueError, match=f"{option} is 0; give 1"):
        create("tpe", digits, **{option: 0})
