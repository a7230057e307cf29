"""Proposers: failures and their probability, fits kept or renewed, pending trials, categories."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from searchers.gp.encoding import Encoding, units
from searchers.gp.feasibility import labels_of_failures
from searchers.gp.fits import MODELS, best_and_random
from searchers.gp.maximise import FixedFeatures
from searchers.gp.proposer import (
    ADDITIVE_MAX_ROWS,
    ADDITIVE_WEIGHT,
    FEASIBILITY_POWER,
    STOPS_IN_A_ROW,
    Proposer,
    failures_of,
)
from searchers.gp.training_data import Evidence
from searchers.searcher import Observation
from searchers.space import Choice, Float, Space

SPACE = Space(
    {
        "x": Float(0.0, 1.0),
        "kind": Choice(("a", "b")),
        "mode": Choice(("p", "q", "r"), when={"kind": ("b",)}),
    }
)


def params(x, kind="a", mode="p"):
    return {"x": x, "kind": kind} | ({"mode": mode} if kind == "b" else {})


def proposer_of(points, losses, failed=(), pending=(), model=MODELS[0], space=SPACE):
    flat_RC = np.empty((len(points), 0))
    loss_R = np.array(losses, dtype=float)
    evidence = Evidence(points, np.arange(len(points)), loss_R, flat_RC, failed, pending)
    return Proposer.of(space, model, evidence)


def columns(*configurations):
    encoding = Encoding.of(SPACE)
    return encoding.columns_of(encoding.snap(units(SPACE, configurations)))


def noted(outcome, fitted):
    """Return a history whose notes hold the fit."""
    note = {"model": MODELS[0].name, "fits": {outcome: fitted.note()}}
    return [Observation("0", params(0.5), note)]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("is_smooth_in", ["losses", "logarithms"])
def test_ranks_show_whether_losses_or_their_logarithms_are_smooth(is_smooth_in, model):
    """A loss proportional to a parameter spans decades too, and its logarithm has a pole at 0."""
    x_N = np.append(np.linspace(0.01, 1.0, 14), [1e-4, 2e-3])
    losses = x_N if is_smooth_in == "losses" else 10.0 ** (-9 * (1 - np.abs(x_N - 0.3)))
    points = [params(x) for x in x_N]
    off, off_in_logarithms = (
        proposer_of(points, losses, model=each).misplaced([], 16, np.random.default_rng(0))
        for each in (model, model.of_logarithms)
    )
    assert (off_in_logarithms < off) == (is_smooth_in == "logarithms")


def stopping(passed, running=0, model=MODELS[0]):
    """Return the proposer after trials of which some passed the first rung.

    Those that still run are the last, and have reported at the first rung alone.
    """
    x_T = np.linspace(0.0, 1.0, len(passed) + running)
    went_on = [*passed, *[False] * running]
    trial_R = np.repeat(np.arange(len(went_on)), [1 + goes for goes in went_on])
    step_R = np.concatenate([[-1.0, 0.0] if goes else [-1.0] for goes in went_on])
    loss_R = 20.0 - 19.0 * (step_R == 0.0) - x_T[trial_R]
    points = [params(x) for x in x_T]
    evidence = Evidence(points, trial_R, loss_R, step_R[:, None], [], points[len(passed) :])
    return Proposer.of(SPACE, model, evidence)


def chance_to_pass(proposer):
    return proposer.pass_probability([], 9, np.random.default_rng(0))


def test_after_some_stops_in_a_row_a_proposal_should_pass_the_first_rung():
    """Otherwise places where trials are stopped every time are proposed for ever."""
    probability, fitted = chance_to_pass(stopping([True] * 4 + [False] * STOPS_IN_A_ROW))
    passes, stops = probability(columns(params(0.1), params(0.9)))
    assert passes > stops + 1.0
    assert fitted.trials == 9
    fewer = [True] * 5 + [False] * (STOPS_IN_A_ROW - 1)
    assert chance_to_pass(stopping(fewer)) is None
    assert chance_to_pass(stopping(fewer, model=MODELS[0].of_logarithms)) is not None


def test_running_trials_have_not_been_stopped():
    """Otherwise the places of trials that go on are closed until they end."""
    fewer = [True] * 5 + [False] * (STOPS_IN_A_ROW - 1)
    assert chance_to_pass(stopping(fewer, running=3)) is None
    due = [True] * 4 + [False] * STOPS_IN_A_ROW
    probability, _ = chance_to_pass(stopping([*reversed(due)], 4, MODELS[0].of_logarithms))
    runs, stops = probability(columns(params(0.95), params(0.1)))
    assert runs > stops + 1.0


@pytest.mark.parametrize("passed", [[True] * 8, [False] * 8], ids=["all", "none"])
def test_where_all_pass_or_none_the_first_rung_tells_nothing(passed):
    assert chance_to_pass(stopping(passed, model=MODELS[0].of_logarithms)) is None


def test_one_trial_that_ended_early_is_no_rung():
    """Otherwise a trial that was stopped by hand stands for all that a rung stopped."""
    steps = [[-1.0], *[[-0.7, 0.0]] * 4, *[[-0.7 + 0.01 * k] for k in range(STOPS_IN_A_ROW)]]
    trial_R = np.repeat(np.arange(len(steps)), [len(each) for each in steps])
    step_R = np.concatenate(steps)
    points = [params(x) for x in np.linspace(0.0, 1.0, len(steps))]
    evidence = Evidence(points, trial_R, 20.0 + step_R, step_R[:, None], [], [])
    assert chance_to_pass(Proposer.of(SPACE, MODELS[0], evidence)) is not None


@pytest.mark.parametrize("ends", [1, 4])
def test_logarithms_are_taken_where_both_scales_predict_the_ranks_alike(ends):
    loss_R = np.append(np.full(8, 20.0), 10.0 ** -np.arange(3.0, 3.0 + ends))
    x_T = np.linspace(0.0, 1.0, 8)
    trial_R = np.append(np.arange(8), np.arange(ends))
    step_R = np.append(np.full(8, -1.0), np.zeros(ends))
    evidence = Evidence([params(x) for x in x_T], trial_R, loss_R, step_R[:, None], [], [])
    proposer = Proposer.of(SPACE, MODELS[0], evidence)
    best = proposer.in_best_scale([], 8, np.random.default_rng(0))
    assert best.model.in_logarithms


@pytest.mark.parametrize("how", ["pending", "failed"])
def test_the_model_expects_less_to_learn_near_a_trial_without_a_result(how):
    """Otherwise a batch proposes one place many times, or a failing place again and again."""
    points, losses = [params(x) for x in (0.0, 0.1, 0.8, 0.9)], [1.0, 0.8, 0.1, 0.9]
    alone, joined = (
        proposer_of(points, losses),
        proposer_of(points, losses, **{how: [params(0.45)]}),
    )
    fitted = alone.fitted([], 4, np.random.default_rng(1))
    mean, deviation = alone.predicted(alone.posterior(fitted), params(0.45))
    same_mean, less = joined.predicted(joined.posterior(fitted), params(0.45))
    assert same_mean == pytest.approx(mean)
    assert less < 0.7 * deviation


def test_a_fit_on_a_part_of_the_rows_has_the_failures_first():
    """Otherwise the fit would hardly see ten failures among five hundred trials."""
    x_ND = columns(*(params(x) for x in np.linspace(0.0, 1.0, 400)))
    labels = labels_of_failures(np.arange(400) < 9)
    failures = failures_of(MODELS[0], Encoding.of(SPACE), x_ND, labels)
    chosen = best_and_random(failures.first_N, 50, np.random.default_rng(0))
    assert (failures.rows.take(chosen).loss_N > labels.threshold).sum() == 9


def test_the_chance_of_success_is_low_among_failures_and_its_fit_is_kept():
    x_N = np.linspace(0.02, 0.98, 16)
    good = [params(x) for x in x_N if x < 0.5]
    proposer = proposer_of(good, np.ones(len(good)), failed=[params(x) for x in x_N if x > 0.5])
    term, fitted = proposer.success_probability([], 16, np.random.default_rng(0))
    power_M = term(columns(params(0.1), params(0.4), params(0.6), params(0.9)))
    chance_M = np.exp(power_M / FEASIBILITY_POWER)
    assert (chance_M[:2] > 0.8).all()
    assert (chance_M[2:] < 0.2).all()
    assert fitted.trials == 16
    again = proposer.success_probability(noted("failure", fitted), 16, np.random.default_rng(1))
    assert again[1] == fitted
    np.testing.assert_allclose(again[0](columns(params(0.6))), power_M[2])


def test_own_effects_count_where_no_parameter_has_an_order_and_rows_pay_for_them():
    """They take a matrix for each parameter: 10 times the time at 300 rows of 20 parameters."""
    names = ("a", "b", "c")
    unordered = Space({name: Choice(("p", "q", "r", "s", "t")) for name in names})
    points = [dict(zip(names, values, strict=True)) for values in product("pqrst", repeat=3)]
    several = proposer_of(points[:ADDITIVE_MAX_ROWS], np.ones(ADDITIVE_MAX_ROWS), space=unordered)
    assert several.rows.kernel.share == pytest.approx(0.4 * ADDITIVE_WEIGHT)
    many = points[: ADDITIVE_MAX_ROWS + 1]
    assert proposer_of(many, np.ones(len(many)), space=unordered).rows.kernel.share == 0.0
    assert proposer_of([params(0.1), params(0.2)], np.ones(2)).rows.kernel.share == 0.0


def test_the_least_visited_category_is_counted_against_its_equals():
    points = [params(0.1), params(0.2), params(0.3), params(0.4, "b", "p"), params(0.5, "b", "q")]
    focus = proposer_of(points, range(5)).least_visited()
    assert SPACE.searched[focus.parameter] == "mode"
    assert focus.unit == SPACE["mode"].to_unit("r")
    both = [*points, params(0.6, "b", "r"), params(0.7, "b", "r")]
    focus = proposer_of(both, range(7)).least_visited()
    assert (SPACE.searched[focus.parameter], focus.unit) == ("mode", SPACE["mode"].to_unit("p"))


def behind(lowest):
    """Return trials: a has the best losses, b three that are far behind, the middle `lowest`."""
    good = [params(x) for x in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)]
    bad = [params(x, "b", "p") for x in (0.1, 0.5, 0.9)]
    return proposer_of([*good, *bad], [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 12.0, lowest, 11.0])


def within(proposer, category):
    return proposer.within_category(
        FixedFeatures(SPACE.searched.index("kind"), SPACE["kind"].to_unit(category))
    )


def test_a_category_that_is_behind_is_told_apart_by_its_own_losses():
    """In the warp of all losses the category is flat, so nothing leads the search to its best."""
    proposer = behind(lowest=10.0)
    contrast = [
        np.ptp(view.output_R[-3:]) / np.ptp(view.output_R)
        for view in (proposer, within(proposer, "b"))
    ]
    assert contrast[1] > 3.0 * contrast[0]


def test_within_a_category_its_own_best_is_improved_on():
    """Against the best of all, a category that is behind would only get random proposals."""
    proposer = within(behind(lowest=10.0), "b")
    process = proposer.posterior(proposer.fitted([], 9, np.random.default_rng(1)))
    candidates = proposer.search(process, [], np.random.default_rng(2))
    found = [SPACE.decode(unit_P) for unit_P in candidates.points.unit_NP]
    assert found[0]["kind"] == "b"
    known = next(params for params in found if params["mode"] == "p")  # other modes: none was tried
    assert abs(known["x"] - 0.5) < 0.3
    of_all = replace(proposer, rivals=None).search(process, [], np.random.default_rng(2))
    assert candidates.value_N[0] > of_all.value_N[0] + 1.0


def test_within_a_category_the_fit_is_of_its_results_however_many_there_are():
    """A fit has a hundred rows; the best of all are nearly constant in the warp of one category."""
    rng = np.random.default_rng(3)
    x_N = rng.random(140)
    points = [params(x, "b", "p") if place % 12 == 0 else params(x) for place, x in enumerate(x_N)]
    losses = [10.0 + np.sin(9.0 * p["x"]) if p["kind"] == "b" else p["x"] ** 2 for p in points]
    proposer = within(proposer_of(points, losses), "b")
    process = proposer.posterior(proposer.fitted([], 140, np.random.default_rng(4)))
    found_N = process.mean(columns(*[params(x, "b", "p") for x in (0.17, 0.52, 0.87)]))
    assert found_N[1] < min(found_N[0], found_N[2])


def test_a_category_with_two_results_is_left_at_the_best_of_all():
    """Two losses give no scale: the search would take their noise for a slope."""
    proposer = proposer_of([params(0.1), params(0.5), params(0.2, "b", "p")], [1.0, 2.0, 3.0])
    narrowed = within(proposer, "b")
    assert narrowed.focus is not None
    assert (narrowed.model, narrowed.rivals) == (proposer.model, None)
