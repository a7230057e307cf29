"""The chart of shares: a triangle of three, bars of others."""

import xml.etree.ElementTree as ET

import pytest
from charted_sweeps import MIXTURE
from simulated_sweeps import Lab, make_spec

from hposvc.reporting.charts import shares
from hposvc.reporting.history import History

SVG = "{http://www.w3.org/2000/svg}"
SOURCES = [f"source{number:02}" for number in range(17)]


def history_of_mixture(folder, **sections):
    lab = Lab.at(folder)
    curve = {"type": "simulate", "curve": "charted_sweeps:by_first_share"}
    spec = make_spec(**{"engine": curve, "trials": {"max": 20, "parallel": 4}, **sections})
    lab.run(spec)
    events = lab.events()
    lab.journal.store.close()
    return History.of(spec, events)


def texts(svg):
    return [element.text for element in ET.fromstring(svg).iter(f"{SVG}text")]


def test_the_best_trial_comes_first_and_others_lie_around_it(history_of):
    history = history_of("shares")
    mix, experts = shares.build(history).data["groups"]
    best = history.state.trials[history.state.best]
    assert mix["best"] == mix["trial"][0] == best.id
    assert mix["best_shares"] == [best.params[f"mix.{name}"] for name in MIXTURE["mix"]["shares"]]
    assert [sum(row) for row in mix["share"]] == pytest.approx([1.0] * 40)
    assert {sum(row) for row in experts["share"]} == {64}
    assert mix["leads"] == [True] * 5 + [False] * 35
    for name, low, high in zip(mix["shares"], mix["low"], mix["high"], strict=True):
        leading = [history.state.trials[trial].params[f"mix.{name}"] for trial in mix["trial"][:5]]
        assert (min(leading), max(leading)) == (low, high)


def test_three_shares_are_points_within_a_triangle_whose_corners_are_named(history_of):
    data = shares.build(history_of("shares")).data
    svg = shares.draw({**data, "groups": data["groups"][:1]})
    root = ET.fromstring(svg)
    corners = {text.text: text for text in root.iter(f"{SVG}text")}
    left, right, top = (corners[name] for name in data["groups"][0]["shares"])
    dots = [dot for dot in root.iter(f"{SVG}circle") if dot.find(f"{SVG}title") is not None]
    assert len(dots) == 40 + 1  # the best one twice
    for dot in dots:
        assert float(left.get("x")) < float(dot.get("cx")) < float(right.get("x"))
        assert float(top.get("y")) < float(dot.get("cy")) < float(left.get("y"))


def test_many_shares_are_bars_the_largest_of_the_best_trial_first(tmp_path):
    mix = {"shares": SOURCES, "zeros": True}
    history = history_of_mixture(tmp_path, parameters={"mix": mix})
    data = shares.build(history).data
    (group,) = data["groups"]
    drawn = [text for text in texts(shares.draw(data)) if text in SOURCES]
    assert sorted(drawn) == SOURCES
    by_name = dict(zip(group["shares"], group["best_shares"], strict=True))
    assert [by_name[name] for name in drawn] == sorted(by_name.values(), reverse=True)
    assert f"mix of {group['best']}, the best trial" in texts(shares.draw(data))


def test_of_more_shares_than_a_chart_holds_the_largest_are_drawn(tmp_path):
    mix = {"shares": [f"source{number:02}" for number in range(40)]}
    history = history_of_mixture(tmp_path, parameters={"mix": mix})
    data = shares.build(history).data
    drawn = [text for text in texts(shares.draw(data)) if text.startswith("source")]
    (group,) = data["groups"]
    largest = sorted(group["best_shares"], reverse=True)[: shares.BARS]
    by_name = dict(zip(group["shares"], group["best_shares"], strict=True))
    assert [by_name[name] for name in drawn] == largest


def test_the_sentence_names_the_largest_shares_and_counts_zeros():
    group = {
        **{"name": "mix", "shares": ["a", "b", "c", "d"], "total": 1.0, "of": 30, "leading": 5},
        **{"best": "t0007", "best_shares": [0.1, 0.6, 0.0, 0.3]},
        **{"low": [0.0, 0.55, 0.0, 0.2], "high": [0.2, 0.65, 0.0, 0.4]},
    }
    assert shares._message(group, "the best trial") == (
        "The best trial, t0007, has 60% b, 30% d and 10% a of mix; 1 of its 4 shares is 0. "
        "In the 5 best of 30 b is 55% to 65%."
    )


def test_of_several_metrics_the_front_leads(tmp_path):
    metrics = [{"name": "loss", "goal": "minimize"}, {"name": "size", "goal": "minimize"}]
    parameters = {
        "kind": {"values": ["mixed", "pure"]},
        "mix": {"shares": SOURCES[:4], "when": {"kind": "mixed"}},
    }
    history = history_of_mixture(tmp_path, metric=None, metrics=metrics, parameters=parameters)
    chart = shares.build(history)
    (group,) = chart.data["groups"]
    mixed = [trial for trial in history.state.trials.values() if trial.params["kind"] == "mixed"]
    assert group["of"] == len(mixed) < 20
    assert group["best"] == min(mixed, key=lambda trial: trial.losses[0]).id
    assert chart.message.startswith(f"The best in loss, {group['best']}, has ")


def test_without_shares_or_results_there_is_no_chart(history_of, tmp_path):
    assert shares.build(history_of("asha")) is None
    assert shares.build(history_of("queued")) is None
    parameters = {"mix": {"shares": 3, "when": {"kind": "b"}}, "kind": {"values": ["a", "b"]}}
    initial = [{"kind": "a"}]
    trials = {"max": 1, "parallel": 1}
    history = history_of_mixture(tmp_path, parameters=parameters, initial=initial, trials=trials)
    assert shares.build(history) is None
