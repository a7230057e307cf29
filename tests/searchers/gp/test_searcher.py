"""The searcher as a whole: it finds minima, is pure, and never repeats itself or gives up."""

import json
import math

import numpy as np
import pytest

from searchers.gp.searcher import GaussianProcess
from searchers.searcher import Observation, call_rng
from searchers.space import Choice, Float, Int, Space

BRANIN = Space({"x": Float(-5.0, 10.0), "y": Float(0.0, 15.0)})
MIXED = Space(
    {
        "lr": Float(1e-5, 1.0, log=True),
        "layers": Int(1, 12),
        "batch": Choice((16, 32, 64, 128), ordered=True),
        "optimizer": Choice(("sgd", "adam", "lars")),
        "momentum": Float(0.0, 0.99, when={"optimizer": ("sgd", "lars")}),
        "nesterov": Choice((True, False), when={"optimizer": ("sgd",)}),
    }
)


def branin(params):
    x, y = params["x"], params["y"]
    bowl = (y - 5.1 / (4.0 * math.pi**2) * x * x + 5.0 / math.pi * x - 6.0) ** 2
    return bowl + 10.0 * (1.0 - 1.0 / (8.0 * math.pi)) * math.cos(x) + 10.0  # minimum 0.397887


def mixed(params):
    """Return a loss with minimum 0 in the sgd branch, 0.15 in the others."""
    loss = 0.2 * (math.log10(params["lr"]) + 2.5) ** 2 + 0.03 * abs(params["layers"] - 5)
    loss += 0.05 * abs(math.log2(params["batch"]) - 6.0)
    if params["optimizer"] != "sgd":
        return loss + 0.15
    return loss + (params["momentum"] - 0.9) ** 2 + (0.0 if params["nesterov"] else 0.05)


def parabola(params):
    """Return the loss after nine steps of descent with momentum, which falls over decades."""
    x, v = 5.0, 0.0
    for _ in range(9):
        v = params["momentum"] * v - params["lr"] * 2.0 * x
        x += v
    return min(x * x, 1e6)


def run(space, objective, trials, seed, searcher=None, parallel=1):
    """Return a history after `trials` results, asked in batches of `parallel`."""
    searcher = searcher or GaussianProcess()
    history = []
    while len(history) < trials:
        proposals = searcher.suggest(space, history, parallel, call_rng(seed, len(history)))
        for proposal in proposals:
            loss = objective(proposal.params)
            name = str(len(history))
            history.append(
                Observation(name, proposal.params, proposal.note, loss=loss, state="done")
            )
        if len(proposals) < parallel:
            break
    return history


def best(history):
    return min(seen.loss for seen in history)


def best_of_random(space, objective, trials, seed):
    rng = np.random.default_rng(seed)
    return min(objective(space.sample(rng)) for _ in range(trials))


def done(name, params, loss, **rest):
    return Observation(name, params, loss=loss, state="done", **rest)


def test_branin_is_solved_in_thirty_trials_where_random_search_is_not():
    regret = best(run(BRANIN, branin, 30, seed=0)) - 0.397887
    assert regret < 0.02
    assert regret < 0.1 * (best_of_random(BRANIN, branin, 120, seed=0) - 0.397887)


def test_a_mixed_conditional_space_is_searched_better_than_by_chance():
    history = run(MIXED, mixed, 50, seed=0)
    assert best(history) < 0.03
    assert best(history) < 0.5 * best_of_random(MIXED, mixed, 200, seed=0)
    for seen in history:
        MIXED.validate(seen.params)


def test_batches_of_four_still_find_the_minimum():
    assert best(run(BRANIN, branin, 40, seed=3, parallel=4)) - 0.397887 < 0.05


def test_the_start_is_the_centre_and_then_spread_out():
    history = run(BRANIN, branin, 4, seed=0)
    assert history[0].params == {"x": 2.5, "y": 7.5}
    assert {seen.note["source"] for seen in history} == {"start"}
    assert len({seen.note["design"] for seen in history}) == 1


def test_the_start_goes_on_with_its_own_design_whatever_the_generator():
    first = run(BRANIN, branin, 2, seed=0)
    proposals = GaussianProcess().suggest(BRANIN, first, 1, np.random.default_rng(5))
    with_other_rng = GaussianProcess().suggest(BRANIN, first, 1, np.random.default_rng(6))
    assert proposals == with_other_rng


def test_notes_are_json_and_say_what_was_expected():
    history = run(MIXED, mixed, 16, seed=0)
    assert [json.loads(json.dumps(seen.note, allow_nan=False)) for seen in history] == [
        seen.note for seen in history
    ]
    modelled = [seen.note for seen in history if seen.note["source"] == "model"]
    assert len(modelled) == 12
    assert {note["model"] for note in modelled} == {"tail", "power"}
    for note in modelled:
        assert -1.0 < note["mean"] < 10.0
        assert 0.0 < note["deviation"] < 10.0
        assert note["acquisition"] < 3.0
        assert len(note["fits"]["loss"]["lengthscales"]) == 6
    assert any("was tried least" in note["reason"] for note in modelled)


def test_a_refit_starts_from_the_last_note_and_a_fit_that_is_not_due_is_reused():
    history = run(BRANIN, branin, 12, seed=0)
    # No result came in since: at the second model's next turn its fit is the same.
    batch = GaussianProcess().suggest(BRANIN, history, 4, call_rng(0, 12))
    fits = [proposal.note["fits"] for proposal in batch]
    assert fits[0] == fits[2]
    assert fits[1] == fits[3]
    assert fits[0] != fits[1]


def test_pending_trials_are_not_proposed_again_and_are_kept_away_from():
    history = run(BRANIN, branin, 12, seed=0)
    alone = GaussianProcess().suggest(BRANIN, history, 1, call_rng(0, 12))[0]
    waiting = Observation("waiting", alone.params)
    other = GaussianProcess().suggest(BRANIN, [*history, waiting], 1, call_rng(0, 12))[0]
    distance = np.abs(BRANIN.encode(alone.params) - BRANIN.encode(other.params)).max()
    assert distance > 0.02


@pytest.mark.parametrize("best_x", [0.4, 0.55])
def test_half_of_the_space_that_fails_is_left_alone(best_x):
    """Otherwise trials run out of memory again and again, as half of them do in random search."""
    space = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
    history = []
    for place in range(30):
        proposal = GaussianProcess().suggest(space, history, 1, call_rng(0, place))[0]
        name, params, note = str(place), proposal.params, proposal.note
        if params["x"] > 0.5:
            seen = Observation(name, params, note, state="failed", reason="oom")
        else:
            loss = (params["x"] - best_x) ** 2 + (params["y"] - 0.3) ** 2
            seen = Observation(name, params, note, loss, (), "done")
        history.append(seen)
    # Failures go on at the edge, where the best may be; elsewhere they stop at once.
    assert sum(seen.state == "failed" for seen in history) < (10 if best_x < 0.5 else 18)
    lowest = max(best_x - 0.5, 0.0) ** 2
    assert min(seen.loss for seen in history if seen.loss is not None) < lowest + 0.002


def test_a_failed_trial_sets_no_mark_to_improve_on():
    """Otherwise no working place could improve on a loss that was predicted for a failed trial."""
    space = Space({"x": Float(0.0, 1.0)})
    history = [done(str(i), {"x": x}, -x) for i, x in enumerate((0.0, 0.15, 0.3, 0.4))]
    for place, x in enumerate((0.7, 0.8, 0.9, 1.0), start=4):
        history.append(Observation(str(place), {"x": x}, state="failed", reason="oom"))
    for proposal in GaussianProcess().suggest(space, history, 2, call_rng(0, 8)):
        assert 0.4 < proposal.params["x"] < 0.7


def test_models_look_for_the_best_at_the_highest_step():
    rng = np.random.default_rng(0)
    history = []
    for place in range(24):
        x = float(rng.random())
        # After one step small x looks best; after nine large x is.
        curve = ((1, x),) if place % 2 else ((1, x), (9, 1.0 - x))
        history.append(done(str(place), {"x": x}, curve[-1][1], curve=curve))
    space = Space({"x": Float(0.0, 1.0)})
    proposals = GaussianProcess().suggest(space, history, 2, call_rng(0, 24))
    assert all(proposal.params["x"] > 0.7 for proposal in proposals)


def test_a_model_that_breaks_gives_way_to_the_design_and_says_why():
    rng = np.random.default_rng(0)
    broken = {"lengthscales": [1e-300, 1e-300], "noise": 1e-6, "scale": 1.0, "trials": 12}
    notes = [{"model": model, "fits": {"loss": broken}} for model in ("tail", "power")]
    history = [done(str(i), BRANIN.sample(rng), rng.random(), note=notes[i % 2]) for i in range(12)]
    proposal = GaussianProcess().suggest(BRANIN, history, 1, rng)[0]
    assert proposal.note["source"] == "fallback"
    assert "the model failed" in proposal.note["reason"]
    BRANIN.validate(proposal.params)


def test_losses_that_fall_over_decades_are_told_apart():
    """Otherwise all low ones look alike, and a random search comes lower."""
    space = Space({"lr": Float(0.003, 1.0, log=True), "momentum": Float(0.1, 0.95)})
    histories = [run(space, parabola, 30, seed) for seed in range(8)]
    drawn = [[space.sample(call_rng(seed, i)) for i in range(30)] for seed in range(8)]
    randoms = [min(map(parabola, points)) for points in drawn]
    assert np.median([best(history) for history in histories]) < 1e-2 * np.median(randoms)
    models = {seen.note.get("model") for history in histories for seen in history}
    assert {"tail of logarithms", "power of logarithms"} <= models
    ordinary = run(BRANIN, branin, 12, seed=0)
    assert {seen.note.get("model") for seen in ordinary} <= {None, "tail", "power"}


def test_a_fault_of_the_program_is_not_hidden_by_the_design(monkeypatch):
    """Otherwise arrays of the wrong shape turn a search into quasi-random search, unnoticed."""
    rng = np.random.default_rng(0)
    history = [done(str(i), BRANIN.sample(rng), rng.random()) for i in range(12)]
    monkeypatch.setattr(
        "searchers.gp.model.Posterior.predict", lambda self, x_MD: np.zeros(7) + x_MD
    )
    with pytest.raises(ValueError, match="could not be broadcast"):
        GaussianProcess().suggest(BRANIN, history, 1, rng)


def test_more_rows_than_the_limit_are_cut_to_the_best_and_the_latest():
    rng = np.random.default_rng(0)
    points = [BRANIN.sample(rng) for _ in range(120)]
    history = [done(str(i), params, branin(params)) for i, params in enumerate(points)]
    proposals = GaussianProcess(rows=40).suggest(BRANIN, history, 2, call_rng(0, 120))
    assert {proposal.note["source"] for proposal in proposals} == {"model"}
    assert min(branin(proposal.params) for proposal in proposals) < 2.0


def with_failures(count, several, note):
    """Return trials of which every eighth failed; the 64th has the note."""
    rng = np.random.default_rng(0)
    history = []
    for place in range(count):
        params, loss = BRANIN.sample(rng), float(rng.random())
        outcome = {"losses": (loss, params["x"]), "excess": (loss,)} if several else {"loss": loss}
        outcome["state"] = "done"
        if place % 8 == 0:
            outcome = {"state": "failed", "reason": "oom"}
        history.append(Observation(str(place), params, note if place == 63 else {}, **outcome))
    return history


@pytest.mark.parametrize("several", [False, True])
def test_results_beyond_the_limit_of_rows_make_new_fits_due(several):
    """Otherwise the models of a long sweep keep the fits that they had when the rows were full."""
    searcher = GaussianProcess(rows=40)
    results = ("objective 0", "objective 1", "limit 0") if several else ("loss",)
    note = {}
    for count, failed in ((64, 8), (76, 10)):
        history = with_failures(count, several, note)
        note = searcher.suggest(BRANIN, history, 1, call_rng(0, count))[0].note
        trials = {name: fitted["trials"] for name, fitted in note["fits"].items()}
        assert trials == {**dict.fromkeys(results, count - failed), "failure": count}


def test_earlier_trials_of_the_same_function_save_the_first_trials():
    """Otherwise a sweep that continues another starts from nothing."""
    alone, informed = run(BRANIN, branin, 5, seed=1), run_after(1, 0.0)
    assert informed[4].loss < alone[4].loss
    assert best(informed) < best(alone)
    assert informed[0].note["source"] == "earlier sweeps"


def test_earlier_trials_at_another_level_do_no_harm():
    """Otherwise an earlier sweep on a larger dataset, or in another unit, misleads this one."""
    seeds = range(6)
    alone = [best(run(BRANIN, branin, 5, seed)) for seed in seeds]
    assert np.median([best(run_after(seed, 100.0)) for seed in seeds]) <= np.median(alone)


@pytest.mark.parametrize("lowest", [0.5, 0.0, -0.1])
def test_earlier_trials_may_have_losses_without_a_logarithm(lowest):
    """Otherwise a sweep whose own losses fall over decades is searched without a model."""
    rng = np.random.default_rng(0)
    points = [BRANIN.sample(rng) for _ in range(26)]
    history = [done(str(i), params, 10.0 ** (-8.0 + i / 2)) for i, params in enumerate(points[:14])]
    earlier = [done(f"e{i}", params, lowest + i) for i, params in enumerate(points[14:])]
    note = GaussianProcess().after(earlier).suggest(BRANIN, history, 1, rng)[0].note
    assert note["source"] == "model"


def run_after(seed, offset):
    """Run five trials after a sweep of 15, whose losses were higher by `offset`."""
    rng = np.random.default_rng(seed)
    points = [BRANIN.sample(rng) for _ in range(15)]
    earlier = [done(f"e{i}", point, branin(point) + offset) for i, point in enumerate(points)]
    return run(BRANIN, branin, 5, seed, GaussianProcess().after(earlier))


def test_several_objectives_are_searched_after_a_longer_design():
    """Otherwise one end of a front is polished before the other end was seen."""
    history = []
    for place in range(6):
        (proposal,) = GaussianProcess().suggest(BRANIN, history, 1, call_rng(0, place))
        json.dumps(proposal.note, allow_nan=False)
        losses = (branin(proposal.params), proposal.params["x"])
        name, params, note = str(place), proposal.params, proposal.note
        history.append(Observation(name, params, note, state="done", losses=losses))
    assert [seen.note["source"] for seen in history] == ["start"] * 4 + ["model"] * 2
    assert all(np.isfinite(seen.note["acquisition"]) for seen in history[4:])


@pytest.mark.parametrize("options", [{"initial": 0}, {"probe_every": -1}, {"rows": 3}])
def test_options_that_make_no_sense_are_named(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        GaussianProcess(**options)
