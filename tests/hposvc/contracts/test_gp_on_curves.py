"""`gp` searches where the good configurations are, whichever way values go with the step."""

import statistics

import pytest
from simulated_sweeps import make_spec

CURVES = """
import math

def rising(params, step):
    return {"loss": params["a"] + 0.5 * step}, 1.0

def fanning(params, step):
    return {"loss": params["a"] * (1 + step)}, 1.0

def sinking(params, step):  # to be maximized
    return {"loss": -params["a"] - 0.5 * step}, 1.0

def falling(params, step):
    return {"loss": params["a"] + 3 / step}, 1.0

def crossing(params, step):  # the higher a is, the sooner a trial learns, and the higher it ends
    return {"loss": params["a"] * step / 27 + (1 - params["a"]) * math.exp(-step / 4)}, 1.0

def decades(params, step):  # descent with momentum on a parabola
    x, v = 5.0, 0.0
    for _ in range(step):
        v = (0.1 + 0.85 * params["b"]) * v - 0.003 * 333 ** params["a"] * 2 * x
        x += v
    return {"loss": min(x * x, 1e6)}, 1.0

def late(params, step):  # all alike up to step 18
    return {"loss": 1 - (1 - params["a"]) * max(0, step - 18) / 9}, 1.0
"""
ASHA = {"type": "asha"}
SCHEDULERS = [ASHA, {"type": "hyperband"}]
PLATEAU = {"type": "fifo", "plateau": {"patience": 2}}
TREES = {  # a family of which something is known beforehand
    "lr": {"min": 1e-3, "max": 1.0, "log": True},
    "max_depth": {"min": 1, "max": 12},
    "subsample": {"min": 0.2, "max": 1.0},
}


@pytest.fixture
def proposed(tmp_path, monkeypatch, lab):
    """Return a function that runs a sweep and returns `a` of its trials; 0 is the best."""
    (tmp_path / "curves_of_gp.py").write_text(CURVES)
    monkeypatch.syspath_prepend(tmp_path)

    return lambda curve, **sections: [seen.params["a"] for seen in run(lab, curve, **sections)]


def run(lab, curve, trials=20, search="gp", **sections):
    """Return the trials of a sweep."""
    spec = make_spec(
        parameters={"a": {"min": 0.0, "max": 1.0}, "b": {"min": 0.0, "max": 1.0}},
        engine={"type": "simulate", "curve": f"curves_of_gp:{curve}"},
        trials={"max": trials, "parallel": 1},
        search=search,
        **sections,
    )
    return lab.run(spec, f"{search}-{spec.seed}").history()


def shares(tried):
    """Return how many proposals of the model are in the worst and in the best fifth."""
    own = tried[4:]
    return sum(a > 0.8 for a in own), sum(a < 0.2 for a in own)


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=str)
def test_values_that_rise_with_the_step_do_not_lead_back_to_stopped_trials(proposed, scheduler):
    """Of unlike steps the lower one has the lower values; 11 of 16 proposals were above .9."""
    worst, best = shares(proposed("rising", scheduler=scheduler))
    assert worst <= 3
    assert best >= 8


@pytest.mark.parametrize(
    ("curve", "goal"), [("fanning", "minimize"), ("sinking", "maximize"), ("falling", "minimize")]
)
def test_neither_do_other_curves(proposed, curve, goal):
    metric = {"name": "loss", "goal": goal}
    worst, best = shares(proposed(curve, metric=metric, scheduler=ASHA))
    assert worst <= 3
    assert best >= 8


def test_curves_that_cross_do_not_lead_to_those_that_are_ahead_at_first(proposed):
    """The rungs stop the trials that would end best; the model is not misled with them."""
    sections = {"scheduler": ASHA, "fidelity": {"min": 1, "max": 27}}
    tried = [shares(proposed("crossing", seed=seed, **sections)) for seed in range(4)]
    worst, best = map(sum, zip(*tried, strict=True))
    assert worst <= 12
    assert best > 2 * worst + 8


def test_curves_that_part_late_lead_to_the_lowest_ends(proposed):
    worst, best = shares(proposed("late", scheduler=ASHA, fidelity={"max": 27}))
    assert worst <= 3
    assert best >= 8


@pytest.mark.parametrize("mode", ["stop", "promote"])
def test_a_loss_that_falls_over_decades_leads_below_random_trials(proposed, lab, mode):
    """Otherwise low losses look alike, and so do those of trials that are stopped every time."""
    sections = {"scheduler": {"type": "asha", "mode": mode}, "fidelity": {"min": 1, "max": 9}}
    lowest = {
        search: [
            min(seen.loss for seen in run(lab, "decades", 30, search, seed=seed, **sections))
            for seed in range(5)
        ]
        for search in ("gp", "random")
    }
    assert sorted(lowest["gp"])[-2] < statistics.median(lowest["random"])
    assert statistics.median(lowest["gp"]) < 0.1 * statistics.median(lowest["random"])


@pytest.mark.parametrize("scheduler", [{"type": "fifo"}, ASHA, PLATEAU], ids=str)
@pytest.mark.parametrize("method", ["gp", "auto"])
def test_the_learned_prior_leads_whether_or_not_trials_may_be_stopped(lab, scheduler, method):
    trials = {"max": 6, "parallel": 1}
    spec = make_spec(parameters=TREES, search=method, scheduler=scheduler, trials=trials)
    notes = [seen.note for seen in lab.run(spec).history()]
    sources = ["start", *["learned prior"] * 3, *["model"] * 2]
    assert [note["source"] for note in notes] == sources
    assert all("learned_prior" in note for note in notes[4:])
