"""Earlier sweeps: what was best there comes first, and they say which parameters matter."""

from dataclasses import replace

import numpy as np
import pytest

from searchers.gp.fits import MODELS
from searchers.gp.model import with_noise
from searchers.gp.proposer import Proposer
from searchers.gp.repeats import repeated
from searchers.gp.searcher import GaussianProcess
from searchers.gp.training_data import Evidence
from searchers.gp.transfer import EarlierSweeps
from searchers.optimizer import Optimizer
from searchers.searcher import REPEAT_OF, TRIED, Observation, call_rng
from searchers.space import Float, Space

SPACE = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})


def loss(params):
    return (params["x"] - 0.3) ** 2 + 0.3 * (params["y"] - 0.7) ** 2


def sweep(name, sign=1.0, offset=0.0, trials=15, seed=0, loss=loss):
    rng = np.random.default_rng(seed)
    points = [SPACE.sample(rng) for _ in range(trials)]
    return [
        Observation(f"{name}/{i}", point, loss=sign * loss(point) + offset, state="done")
        for i, point in enumerate(points)
    ]


def fitted(*earlier):
    return EarlierSweeps.of(SPACE, [seen for trials in earlier for seen in trials], 240, None)


def wavy(params):
    """Only x matters, and it matters over short distances."""
    return float(np.sin(20.0 * params["x"]))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_parameter_that_mattered_over_short_distances_is_expected_to(model):
    sweeps = fitted(*(sweep(f"before-{seed}", seed=seed, loss=wavy) for seed in range(3)))
    prior = model.prior(2)
    told = sweeps.informed(prior)
    assert told.mean_T[0] < told.mean_T[1] - 1.0
    assert told.mean_T[-1] == prior.mean_T[-1]  # the scale is the sweep's own
    assert (told.deviation_T[:2] < prior.deviation_T[:2]).any()
    np.testing.assert_array_equal(told.mean_T[:2], told.start_T[:2])
    assert (prior.mean_T == model.prior(2).mean_T).all()


def test_sweeps_that_differ_leave_more_doubt_than_sweeps_that_agree():
    alike = [sweep(f"before-{seed}", seed=seed, loss=wavy) for seed in range(3)]
    unlike = [*alike[:2], sweep("other", loss=lambda params: params["y"])]
    prior = MODELS[0].prior(2)
    agreeing, differing = (fitted(*each).informed(prior) for each in (alike, unlike))
    assert agreeing.deviation_T[0] < differing.deviation_T[0]


def test_what_a_sweep_has_not_varied_and_a_short_sweep_say_nothing():
    """Otherwise the lengthscale that its prior gave would count as what was seen."""
    constant = [replace(seen, params={**seen.params, "y": 0.5}) for seen in sweep("before")]
    prior = MODELS[0].prior(2)
    told = fitted(constant).informed(prior)
    for of in ("mean_T", "deviation_T", "start_T"):
        assert getattr(told, of)[1] == getattr(prior, of)[1]
        assert getattr(told, of)[0] != getattr(prior, of)[0]
    short = fitted(sweep("before", trials=6)).informed(prior)
    np.testing.assert_array_equal(short.deviation_T, prior.deviation_T)
    np.testing.assert_array_equal(short.mean_T, prior.mean_T)


def test_curves_choices_and_conditions_of_earlier_sweeps_carry_over():
    space = Space.from_dict(
        {
            "lr": {"min": 1e-4, "max": 1.0, "log": True},
            "kind": {"values": ["a", "b", "c"]},
            "share": {"min": 0.0, "max": 1.0, "when": {"kind": "b"}},
        }
    )
    rng = np.random.default_rng(0)

    def seen(name, params):
        level = abs(np.log10(params["lr"]) + 2.0)
        steps = (1, 3, 9) if level < 1.5 else (1, 3)  # others were stopped
        curve = tuple((step, level + 1.0 / step) for step in steps)
        return Observation(name, params, loss=curve[-1][1], curve=curve, state="done")

    earlier = [seen(f"before/{i}", space.sample(rng)) for i in range(16)]
    searcher = GaussianProcess().after(earlier)
    history = [seen(f"t{i}", space.sample(rng)) for i in range(6)]
    (proposal,) = searcher.suggest(space, history, 1, call_rng(0, 6))
    assert proposal.note["source"] == "model"
    assert len(proposal.note["fits"]["loss"]["lengthscales"]) == 4  # of three and of the step
    (first,) = searcher.suggest(space, [], 1, call_rng(0, 0))
    assert abs(np.log10(first.params["lr"]) + 2.0) < 0.5


def test_the_end_of_repeats_does_not_depend_on_earlier_sweeps():
    """That these were noisy says nothing of this one."""
    history = [replace(seen, id=f"t{i}") for i, seen in enumerate(sweep("here", trials=12))]
    best = min(history, key=lambda seen: seen.loss)
    again = replace(best, id="t12", note={REPEAT_OF: best.id}, loss=best.loss + 0.02)
    proposer = Proposer.of(SPACE, MODELS[0], Evidence.of([*history, again]))
    noisy = replace(proposer, informed=lambda prior: with_noise(prior, 0.0, 1.0))
    for each in (proposer, noisy):
        proposal = repeated(each, [*history, again], 13, call_rng(0, 13))
        assert proposal is not None
        assert proposal.params == best.params


@pytest.mark.parametrize("given", [0, 1, 3])
def test_the_first_trial_after_the_users_own_is_theirs(given):
    own = [
        Observation(f"t{i}", {"x": 0.1 * i, "y": 0.5}, {"source": "initial"}, 1.0, (), "done")
        for i in range(given)
    ]
    (proposal,) = GaussianProcess().after(sweep("before")).suggest(SPACE, own, 1, call_rng(0, 0))
    assert proposal.note["source"] == "earlier sweeps"


def test_what_would_give_the_same_result_is_not_proposed_again():
    space = Space.from_dict({"x": {"values": [*range(6)], "ordered": True}})
    earlier = [
        Observation(f"before/{x}", {"x": x}, {TRIED: True}, float(x), (), "done") for x in range(4)
    ]
    (first,) = GaussianProcess().after(earlier).suggest(space, [], 1, call_rng(0, 0))
    assert first.note["source"] == "earlier sweeps"
    assert first.params["x"] in (4, 5)


def test_what_comes_first_is_best_for_most_sweeps_and_then_what_adds_to_it():
    """Levels and units of losses do not matter."""

    def other(params):
        return 100.0 * (params["x"] - 0.9) ** 2

    sweeps = fitted(sweep("a", offset=5.0), sweep("b", seed=1), sweep("c", seed=2, loss=other))
    first = next(sweeps.best_first([]))
    assert loss(first) < 0.05
    second = next(sweeps.best_first([first]))
    assert other(second) < other(first) / 4.0


def test_misleading_sweeps_cost_no_more_than_their_first_trial():
    """They say where the losses were low: all but one of the trials are this sweep's own."""
    wrong = [seen for seed in range(3) for seen in sweep(f"w{seed}", sign=-1.0, seed=seed)]
    ends = []
    for searcher in (GaussianProcess(), GaussianProcess().after(wrong)):
        optimizer = Optimizer(searcher, SPACE, seed=3)
        for _ in range(14):
            trial = optimizer.ask()
            optimizer.tell(trial, loss(trial.params))
        ends.append(min(seen.loss for seen in optimizer.history))
        sources = [seen.note["source"] for seen in optimizer.history]
    assert sources == ["earlier sweeps", *["start"] * 3, *["model"] * 10]
    alone, misled = ends
    assert misled < alone + 1e-3


def test_failures_of_earlier_sweeps_are_avoided():
    """Out of memory there is out of memory here."""
    failed = [
        replace(seen, loss=None, state="failed", reason="oom") if seen.params["x"] < 0.6 else seen
        for seen in sweep("before", trials=40)
    ]
    history = [seen for seen in sweep("here", trials=30, seed=3) if seen.params["x"] > 0.6]
    history = [replace(seen, id=f"t{i}") for i, seen in enumerate(history)]
    searcher = GaussianProcess().after(failed)
    (proposal,) = searcher.suggest(SPACE, history, 1, call_rng(0, len(history)))
    assert proposal.params["x"] > 0.5
    (alone,) = GaussianProcess().suggest(SPACE, history, 1, call_rng(0, len(history)))
    assert alone.params["x"] < 0.6


def test_failures_count_where_an_earlier_sweep_has_too_few_results_for_a_model():
    failed = [replace(seen, loss=None, state="failed", reason="oom") for seen in sweep("before")]
    history = [replace(seen, id=f"t{i}") for i, seen in enumerate(sweep("here", trials=9))]
    rng = call_rng(0, len(history))
    (proposal,) = GaussianProcess().after(failed).suggest(SPACE, history, 1, rng)
    assert "failure" in proposal.note["fits"]
    (alone,) = GaussianProcess().suggest(SPACE, history, 1, call_rng(0, len(history)))
    assert "failure" not in alone.note["fits"]


@pytest.mark.parametrize("is_tried", [False, True])
def test_what_is_predicted_to_be_best_comes_first_and_is_new_where_the_code_is_the_same(is_tried):
    earlier = [replace(seen, note={TRIED: True} if is_tried else {}) for seen in sweep("before")]
    (first,) = GaussianProcess().after(earlier).suggest(SPACE, [], 1, call_rng(0, 0))
    tried = [seen.params for seen in earlier]
    assert (first.params in tried) == (not is_tried)
    assert loss(first.params) <= min(map(loss, tried)) + 1e-9


def test_one_in_four_of_a_first_batch_is_from_earlier_sweeps():
    batch = GaussianProcess().after(sweep("before")).suggest(SPACE, [], 8, call_rng(0, 0))
    sources = [proposal.note["source"] for proposal in batch]
    assert sources == ["earlier sweeps", *["start"] * 3] * 2
