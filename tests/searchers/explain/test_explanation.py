"""Explanations of known functions, compared with Optuna's fANOVA, and of strange histories."""

import json
import math
import re
from pathlib import Path

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import qmc

from searchers.explain.explanation import Explanation
from searchers.gp.searcher import GaussianProcess
from searchers.searcher import Observation, call_rng
from searchers.space import Choice, Constant, Float, Space, SpaceError

CUBE = Space({name: Float(-math.pi, math.pi) for name in "abc"})
WEIGHTS = {"a": 4.0, "b": 2.0, "c": 1.0}
BRANCHES = Space(
    {
        "kind": Choice(("plain", "deep", "wide", "both")),
        "depth": Float(0.0, 1.0, when={"kind": ("deep", "both")}),
        "lr": Float(1e-4, 1.0, log=True),
        "seed": Constant(3),
    }
)


def ishigami(params):
    a, b, c = (params[name] for name in "abc")
    return math.sin(a) + 7.0 * math.sin(b) ** 2 + 0.1 * c**4 * math.sin(a)


def weighted(params):
    return sum(weight * params[name] for name, weight in WEIGHTS.items())


def branches(params):
    """Return 3 times the depth (0.5 where there is none) plus the decades of lr."""
    return 3.0 * params.get("depth", 0.5) + math.log10(params["lr"])


def history_of(space, function, count, sign=1.0):
    """Return results on a quasi-random design."""
    unit_NP = qmc.Sobol(len(space.searched), rng=1).random(count)
    return [
        Observation(str(i), params, loss=sign * function(params), state="done")
        for i, params in enumerate(space.decode(unit_P) for unit_P in unit_NP)
    ]


def optuna_fanova(space, history):
    """Return main effects of the same results, by Optuna's random forest."""
    study = optuna.create_study()
    ranges = {
        name: optuna.distributions.FloatDistribution(space[name].low, space[name].high)
        for name in space.searched
    }
    study.add_trials(
        [
            optuna.trial.create_trial(
                params=dict(seen.params), distributions=ranges, value=seen.loss
            )
            for seen in history
        ]
    )
    return optuna.importance.FanovaImportanceEvaluator(seed=0).evaluate(study)


def test_ishigami_has_its_known_shares():
    explanation = Explanation.of(CUBE, history_of(CUBE, ishigami, 256))
    importance = explanation.importance()
    for name, main, total in [("a", 0.314, 0.558), ("b", 0.442, 0.442), ("c", 0.0, 0.244)]:
        assert importance.main[name] == pytest.approx(main, abs=0.05)
        assert importance.total[name] == pytest.approx(total, abs=0.05)
    assert list(importance.share) == ["a", "b", "c"]
    assert sum(importance.share.values()) == pytest.approx(1.0)
    (pair, share), *others = explanation.interactions().items()
    assert pair == ("a", "c")
    assert share == pytest.approx(0.244, abs=0.06)
    assert all(other < 0.03 for _, other in others)


def test_main_effects_agree_with_optunas_fanova_and_with_the_truth():
    history = history_of(CUBE, weighted, 64)
    ours = Explanation.of(CUBE, history).importance().main
    rival = optuna_fanova(CUBE, history)
    assert list(ours) == sorted(rival, key=lambda name: -rival[name]) == ["a", "b", "c"]
    for name, weight in WEIGHTS.items():
        truth = weight**2 / 21.0
        assert ours[name] == pytest.approx(truth, abs=0.02)
        assert ours[name] == pytest.approx(rival[name], abs=0.1)
        assert abs(ours[name] - truth) <= abs(rival[name] - truth)


def test_the_most_sensitive_parameter_is_the_one_that_wiggles():
    space = Space({"slow": Float(0.0, 1.0), "quick": Float(0.0, 1.0)})
    history = history_of(space, lambda p: p["slow"] + 0.5 * math.sin(12.0 * p["quick"]), 64)
    importance = Explanation.of(space, history).importance()
    assert importance.sensitivity["quick"] > 0.6
    assert sum(importance.sensitivity.values()) == pytest.approx(1.0)


def test_a_conditional_parameter_counts_by_the_share_of_the_space_that_has_it():
    importance = Explanation.of(BRANCHES, history_of(BRANCHES, branches, 128)).importance()
    # The variance of lr is 16 / 12. Depth has 9 / 12 in half of the space: 3 / 8 on average, of
    # which its main effect, averaged over the other half too, is half.
    variance = 16.0 / 12.0 + 3.0 / 8.0
    assert importance.total["depth"] == pytest.approx((3.0 / 8.0) / variance, abs=0.03)
    assert importance.main["depth"] == pytest.approx((3.0 / 16.0) / variance, abs=0.03)
    assert importance.main["lr"] == pytest.approx((16.0 / 12.0) / variance, abs=0.03)
    assert set(importance.share) == {"kind", "depth", "lr"}


def test_values_beyond_the_worst_that_counts_do_not_drown_the_others():
    space = Space({"fatal": Float(0.0, 1.0), "fine": Float(0.0, 1.0)})
    history = history_of(space, lambda p: 50.0 * max(p["fatal"] - 0.7, 0.0) + p["fine"], 128)
    explanation = Explanation.of(space, history)
    assert explanation.importance().share["fine"] < 0.01
    # Up to 1 all that is fatal is equal: total effects of 0.7 / 12 and 0.21 / 3.
    expected = (0.7 / 12.0) / (0.7 / 12.0 + 0.21 / 3.0)
    assert explanation.importance(worst=1.0).share["fine"] == pytest.approx(expected, abs=0.03)
    maximized = Explanation.of(space, history, "maximize")
    assert maximized.importance(worst=-1.0) == explanation.importance(worst=1.0)


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_predictions_are_in_the_users_units_and_sign(goal):
    sign = 1.0 if goal == "minimize" else -1.0
    history = history_of(BRANCHES, branches, 128, sign)
    explanation = Explanation.of(BRANCHES, history, goal)
    params = {"kind": "deep", "depth": 0.8, "lr": 0.01, "seed": 3}
    prediction = explanation.predict(params)
    assert prediction.mean == pytest.approx(0.4, abs=0.1)
    assert 0.0 < prediction.deviation < 0.3
    curve = explanation.dependence("lr")
    np.testing.assert_allclose(curve.mean, 1.5 + np.log10(curve.grids[0]), atol=0.15)
    assert (curve.deviation > 0.0).all()


def test_a_sweep_of_the_searcher_is_explained_with_the_fits_in_its_notes():
    history = []
    for place in range(14):
        (proposal,) = GaussianProcess().suggest(BRANCHES, history, 1, call_rng(0, place))
        loss = branches(proposal.params)
        history.append(
            Observation(str(place), proposal.params, proposal.note, loss=loss, state="done")
        )
    history.append(Observation("running", BRANCHES.sample(np.random.default_rng(0))))
    explanation = Explanation.of(BRANCHES, history)
    assert next(iter(explanation.importance().share)) == "lr"
    assert explanation.predict(history[-1].params).mean == pytest.approx(
        branches(history[-1].params), abs=1.0
    )


def test_trials_that_stopped_early_are_explained_at_the_highest_step():
    """Otherwise the losses at a rung would be taken for final losses."""
    space = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
    history = [
        Observation(str(i), {"x": x, "y": y}, {}, curve[-1][1], curve, "done")
        for i, (x, y) in enumerate(np.random.default_rng(0).random((40, 2)).tolist())
        for curve in [((1, 5.0 + y),) if i % 2 else ((1, 5.0 + y), (9, x))]
    ]
    explanation = Explanation.of(space, history)
    importance = explanation.importance()
    assert set(importance.sensitivity) == {"x", "y"}
    assert importance.share["x"] > 0.8
    assert explanation.predict({"x": 0.5, "y": 0.5}).mean == pytest.approx(0.5, abs=0.3)


def test_one_of_several_objectives_is_explained_in_its_own_sign():
    history = [
        Observation(seen.id, seen.params, losses=(seen.params["a"], -weighted(seen.params)))
        for seen in history_of(CUBE, weighted, 64)
    ]
    history = [Observation(o.id, o.params, losses=o.losses, state="done") for o in history]
    goals = ["minimize", "maximize"]
    first, second = (Explanation.of(CUBE, history, goals, objective=k) for k in (0, 1))
    params = {"a": 1.0, "b": 2.0, "c": -1.0}
    assert first.predict(params).mean == pytest.approx(1.0, abs=0.1)
    assert second.predict(params).mean == pytest.approx(7.0, abs=0.5)
    with pytest.raises(ValueError, match="objective is 2; give 0 to 1"):
        Explanation.of(CUBE, history, goals, objective=2)
    with pytest.raises(ValueError, match="has 2 losses, goal names 1"):
        Explanation.of(CUBE, history)


def test_the_whole_explanation_is_json():
    explanation = Explanation.of(BRANCHES, history_of(BRANCHES, branches, 32))
    read_back = json.loads(json.dumps(explanation.to_dict(), allow_nan=False))
    assert set(read_back["importance"]) == {"share", "main", "total", "sensitivity"}
    assert [set(pair["names"]) <= set(BRANCHES.searched) for pair in read_back["interactions"]]
    assert len(read_back["interactions"]) == 3
    assert set(read_back["dependence"]) == set(BRANCHES.searched)


def test_the_example_of_the_page_prints_what_matters(capsys):
    """The example in docs/how-to/searchers.md runs as it stands there."""
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "searchers.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (example,) = (block for block in blocks if "Explanation" in block)
    exec(compile(example, "docs/how-to/searchers.md", "exec"), {})
    importance, prediction, *curve = capsys.readouterr().out.splitlines()
    assert importance.startswith("{'lr': 0.9")
    assert prediction.startswith("Prediction(mean=0.9")
    assert len(curve) == 5


def test_bad_questions_say_what_can_be_asked():
    history = history_of(BRANCHES, branches, 16)
    explanation = Explanation.of(BRANCHES, history)
    for names, message in [
        (("dept",), "did you mean 'depth'"),
        (("seed",), "seed is a constant"),
        ((), "name one parameter, or two that differ"),
        (("lr", "lr"), "name one parameter, or two that differ"),
        (("lr", "kind", "depth"), "name one parameter, or two that differ"),
    ]:
        with pytest.raises(ValueError, match=message):
            explanation.dependence(*names)
    with pytest.raises(ValueError, match="resolution is 1"):
        explanation.dependence("lr", resolution=1)
    with pytest.raises(SpaceError, match="depth"):
        explanation.predict({"kind": "deep", "lr": 0.1, "seed": 3})
    with pytest.raises(ValueError, match="goal is 'min'"):
        Explanation.of(BRANCHES, history, "min")


def test_too_few_results_are_said():
    history = history_of(CUBE, weighted, 8)
    with pytest.raises(ValueError, match="2 of 2 trials have a result"):
        Explanation.of(CUBE, history[:2])
    failed = [Observation(str(i), seen.params, state="failed") for i, seen in enumerate(history)]
    with pytest.raises(ValueError, match=r"0 of 8 trials have a result.*8 failed"):
        Explanation.of(CUBE, failed)
    with pytest.raises(ValueError, match="constants alone"):
        Explanation.of(Space({"c": Constant(1)}), [])


STRANGE = st.sampled_from(
    [0.0, -0.0, 1.0, 1e-300, 1e300, -1e300, 1e8, 1e8 + 1e-6, math.inf, math.nan]
)


@settings(max_examples=30, deadline=None)
@given(losses=st.lists(STRANGE | st.floats(-1e3, 1e3), min_size=3, max_size=12), data=st.data())
def test_strange_results_are_explained_in_finite_numbers(spaces, losses, data):
    space = data.draw(spaces.filter(lambda space: space.searched))
    rng = np.random.default_rng(0)
    history = [
        Observation(str(i), space.sample(rng), loss=loss, state="done")
        if math.isfinite(loss)
        else Observation(str(i), space.sample(rng), state="failed", reason="diverged")
        for i, loss in enumerate(losses)
    ]
    if sum(map(math.isfinite, losses)) < 2:
        with pytest.raises(ValueError, match="a model needs 2 results"):
            Explanation.of(space, history)
        return
    explanation = Explanation.of(space, history)
    importance = explanation.importance()
    assert all(
        0.0 <= share <= 1.0 for share in [*importance.main.values(), *importance.total.values()]
    )
    prediction = explanation.predict(history[0].params)
    assert math.isfinite(prediction.mean)
    assert prediction.deviation >= 0.0
    json.dumps(explanation.dependence(space.searched[0], resolution=3).to_dict(), allow_nan=False)


def test_drawn_shares_narrow_around_the_truth_as_evidence_grows():
    """The sum of three sines has the shares of their squared weights: 16, 4 and 1 of 21."""
    widths = []
    for count in (6, 40):
        rng = np.random.default_rng(0)
        trials = []
        for index in range(count):
            params = CUBE.sample(rng)
            loss = sum(weight * math.sin(params[name]) for name, weight in WEIGHTS.items())
            trials.append(Observation(f"t{index}", params, loss=loss, state="done"))
        _, total_S = Explanation.of(CUBE, trials).importance_draws()["a"]
        low, high = np.quantile(total_S, [0.05, 0.95])
        widths.append(high - low)
    assert low - 0.05 < 16 / 21 < high + 0.05
    assert widths[1] < 0.7 * widths[0]
