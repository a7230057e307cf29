"""Sweeps compared: what is said of them, what is refused, and what is to be minded."""

import json

import compared_sweeps
import pytest
from compared_sweeps import NARROW, WIDE

from hposvc import api
from hposvc.errors import SpecError
from hposvc.open_sweep import OpenSweep
from hposvc.reporting.comparison import compare


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory):
    return compared_sweeps.record(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def compared(sweeps):
    """Return a function that compares sweeps by their ids."""

    def answer(*names, **options):
        return compare([OpenSweep(sweeps, name) for name in names], **options)

    return answer


def test_groups_are_the_values_of_a_key_and_repeats_are_paired_by_seed(compared):
    data = compared(*WIDE, by=["search.method"]).data()
    assert [group["name"] for group in data["groups"]] == ["random", "sobol"]
    assert (data["paired_by"], data["pairs"], data["tasks"]) == ("seed", 3, 1)
    assert data["groups"][0]["sweeps"] == ["random-0", "random-1", "random-2"]
    assert data["groups"][0]["better"] is None
    assert 0 < data["groups"][1]["better"] < 1
    assert data["warnings"] == []
    ends = [compared(*WIDE).entries[n].end("hours") for n in range(6)]
    assert data["equal_cost"] == min(ends)
    json.dumps(data, allow_nan=False)


def test_the_value_at_equal_cost_is_that_of_the_best_so_far(sweeps, compared):
    answer = compared("random-0", "sobol-0", cost="trials")
    (first, _) = answer.data()["groups"]
    marks = answer.entries[0].history.improvements
    assert first["value"]["mean"] == marks[-1].value
    half = [mark.value for mark in marks if mark.trials <= 6]
    assert first["values"][1] == half[-1]
    assert first["best"] == api.load(sweeps, "random-0").best().value


def test_a_better_group_is_called_better_and_sooner(compared):
    answer = compared(*(name for name in WIDE if "random" in name), *NARROW, by=["parameters"])
    first, last = answer.data()["groups"]
    assert last["name"] == "lr.min=0.0009 lr.max=0.0011"
    assert last["better"] > 0.75  # three sweeps each, by what their trials ended with
    assert last["cost_ratio"]["mean"] < 1
    assert last["rank"]["mean"] == 1.0 < first["rank"]["mean"]
    # One of the wide sweeps has its best trial's result after the narrow ones have ended.
    assert "probability of being better: 80 %" in answer.sentences[0]
    assert not answer.warnings  # they are compared by their space, so it may differ


def test_one_sweep_each_says_that_luck_is_unknown(compared):
    answer = compared("random-0", "sobol-0")
    assert "skill or luck" in answer.sentences[0]
    assert [each.better for each in answer.figures.standings] == [None, None]
    # Curves that only fall tell nothing of how far two runs differ.
    assert "(`baseline: {seeds: 5}` measures it)" in answer.sentences[1]
    assert answer.data()["best_configurations"] is None
    assert len(answer.sentences) == 3


def test_best_configurations_are_compared_by_how_rough_their_curves_are(compared):
    answer = compared("rough-1", "rough-2")
    assert "a guess from their curves" in answer.sentences[1]
    (_, best) = answer.data()["best_configurations"]
    assert 0.1 <= best["better"] <= 0.9


def test_best_configurations_are_compared_by_their_repeats(compared):
    answer = compared("repeated-1", "repeated-2")
    first, last = answer.data()["best_configurations"]
    assert (first["runs"], last["runs"]) == (3, 3)
    # A simulation repeats itself exactly, so there is no doubt.
    assert last["measured"]
    assert last["better"] == (1.0 if last["expected"] < first["expected"] else 0.0)
    assert "guess" not in answer.sentences[1]


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["random-0", "random-0"], {}, "found one sweep, random-0"),
        (["random-0", "front"], {}, "front has several metrics, loss and speed"),
        (["random-0", "upward"], {}, "loss, minimized of random-0; loss, maximized of upward"),
        (["random-0", "gpus"], {}, "GPU-hours of gpus; compare by trials or time"),
        (["random-0", "none"], {}, "no value in none yet"),
        (["random-0", "sobol-0"], {"by": ["searcher"]}, "did you mean 'search'"),
        (["random-0", "random-1"], {"by": ["search"]}, "keys that differ: seed"),
    ],
)
def test_what_can_not_be_compared_is_refused(compared, names, options, message):
    with pytest.raises(SpecError, match=message):
        compared(*names, **options)


def test_what_makes_it_doubtful_is_said(compared):
    said = " ".join(compared("random-0", "long", "none").warnings)
    assert "differ in scheduler" not in said  # one difference is what is compared
    assert "fidelity.max differs (9 of random-0, none; 18 of long)" in said
    assert "none has not ended" in said
    assert "no counterpart in each group: none" in said
    assert "Costs are unequal" in said
    hardware = compared("random-0", "gpus", cost="time").warnings
    assert any("resources.gpus_per_worker differs" in each for each in hardware)
    spaces = compared("random-0", "narrow-0").warnings
    assert any("Search spaces differ" in each for each in spaces)
