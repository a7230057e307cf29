"""`verdict`: useless candidates are kept rarely, however often one looks; good ones are found."""

import json
import shlex
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import run
from hypothesis import given
from hypothesis import strategies as st

from hposvc import api
from hposvc.analysis.verdict import FEWEST, MOST, decide, wealth

CAMPAIGNS = 1_000


def campaigns(noise, effect, seed):
    """Return how each of 1,000 campaigns ends whose candidate is looked at after each new pair."""
    rng = np.random.default_rng(seed)
    ends = []
    for _ in range(CAMPAIGNS):
        differences = noise(rng, MOST) + effect - noise(rng, MOST)
        choices = (decide(differences[:pairs])[0] for pairs in range(1, MOST + 1))
        ends.append(next(choice for choice in choices if choice != "RETEST"))
    return {choice: ends.count(choice) for choice in ("KEEP", "DISCARD")}


NOISES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "heavy-tailed": lambda rng, n: rng.standard_t(2, size=n),
    "skewed": lambda rng, n: rng.lognormal(size=n),
    "of few values": lambda rng, n: rng.integers(0, 3, size=n).astype(float),
}


@pytest.mark.parametrize("noise", NOISES)
def test_of_1000_campaigns_without_a_difference_at_most_5_percent_keep_the_candidate(noise):
    assert campaigns(NOISES[noise], 0.0, seed=0)["KEEP"] <= 0.05 * CAMPAIGNS


@pytest.mark.parametrize(("effect", "least"), [(1.0, 0.55), (2.0, 0.95)])
def test_differences_of_one_and_of_two_standard_deviations_are_mostly_found(effect, least):
    assert campaigns(NOISES["normal"], effect, seed=1)["KEEP"] >= least * CAMPAIGNS


def test_worse_candidates_are_discarded():
    assert campaigns(NOISES["normal"], -1.0, seed=2)["DISCARD"] >= 0.99 * CAMPAIGNS


def test_bets_on_signs_can_not_win_on_average():
    """The mean wealth over all signs of the same sizes is 1: it is a martingale."""
    sizes = [0.3, 1.0, 0.5, 2.0, 0.1, 4.0]
    signs = np.array(np.meshgrid(*[[-1, 1]] * len(sizes))).reshape(len(sizes), -1).T
    assert np.mean([wealth([*(sizes * row)]) for row in signs]) == pytest.approx(1.0)


@given(st.lists(st.floats(-1e300, 1e300), max_size=MOST), st.floats(1e-6, 1e6))
def test_the_choice_depends_on_no_unit_and_needs_enough_pairs(differences, unit):
    choice, more = decide(differences)
    assert (more > 0) == (choice == "RETEST")
    assert choice != "KEEP" or len(differences) >= FEWEST
    assert wealth([2.0 * x for x in differences]) == wealth(differences)
    assert wealth([]) == 1.0


def test_a_lead_that_lasts_is_kept_after_as_few_pairs_as_can_prove_it():
    assert decide([1.0] * (FEWEST - 1))[0] == "RETEST"
    assert decide([1.0] * FEWEST) == ("KEEP", 0)
    assert decide([1.0] * 3)[1] == FEWEST - 3
    assert decide([0.0] * (MOST - 1)) == ("RETEST", 1)
    assert decide([0.0] * MOST) == ("DISCARD", 0)


SPEC = {
    "name": "duel",
    "engine": {"type": "simulate", "curve": "curves:valley"},
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 3},
    "parameters": {"x": {"values": [1, 2, 3], "ordered": True}, "width": 64},
    "search": "grid",
    "trials": {"max": 3},
    "tracking": {"send_to": []},
}


@pytest.fixture
def spec(tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path / 'home'}")
    file = tmp_path / "sweep.json"

    def write(**sections):
        file.write_text(json.dumps({**SPEC, **sections}))
        return file

    return write


def retested(capfd, first, second):
    """Run the printed command until the verdict is none of it; return the verdicts, with pairs."""
    answers = []
    for _ in range(MOST + 1):
        answers.append(run(capfd, "verdict", first, second, "-o", "json").data)
        if answers[-1]["verdict"] != "RETEST":
            return answers
        *before, again = answers[-1]["retest"].split("; ")
        assert again == f"hposvc verdict {answers[-1]['baseline']} {answers[-1]['candidate']}"
        for command in before:
            assert run(capfd, *shlex.split(command)[1:]).code == 0
    raise AssertionError(answers)


def test_trials_without_replicates_are_retested_by_the_printed_command_in_their_sweep(spec, capfd):
    assert run(capfd, "run", spec(), "--id", "s").code == 0
    code, out, _ = run(capfd, "verdict", "s/t0001", "s/t0002")
    assert code == 10
    said = f"RETEST: 0 pairs of runs: too few; {FEWEST} more: "
    command = f"hposvc extend s --set seeds.t0001={FEWEST} --set seeds.t0002={FEWEST}"
    assert " ".join(out.split()) == f"{said}{command}; hposvc verdict s/t0001 s/t0002"
    first, *_, last = retested(capfd, "s/t0001", "s/t0002")
    assert first["retest"].startswith(command)
    assert last["verdict"] in ("KEEP", "DISCARD")
    state = api.load(api.Sweeps.open(), "s").state
    assert (state.state, len(state.trials)) == ("COMPLETED", 3), "nothing else was trained"
    assert {run.replicate_of for run in state.replicates.trials.values()} == {"t0001", "t0002"}


def test_trials_that_differ_in_nothing_end_as_not_shown_to_be_better(spec, capfd):
    """And to ask for seeds that a trial has adds none."""
    sections = {"parameters": {"x": 2, "width": {"values": [1, 2]}}, "trials": {"max": 2}}
    assert run(capfd, "run", spec(**sections), "--id", "s").code == 0
    answers = retested(capfd, "s/t0001", "s/t0002")
    assert [answer["pairs"] for answer in answers] == sorted({one["pairs"] for one in answers})
    assert answers[-1]["verdict"] == "DISCARD"
    again = f"seeds.t0001={answers[-1]['pairs']}"
    assert run(capfd, "extend", "s", "--set", again).code == 0
    replicates = api.load(api.Sweeps.open(), "s").state.replicates.trials
    assert len(replicates) == 2 * answers[-1]["pairs"]


def test_trials_of_two_sweeps_are_retested_where_they_are(spec, capfd):
    for sweep in ("s", "r"):
        assert run(capfd, "run", spec(), "--id", sweep).code == 0
    first, *_, last = retested(capfd, "s/t0001", "r/t0002")
    assert "extend s --set seeds.t0001=6; hposvc extend r --set seeds.t0002" in first["retest"]
    assert last["verdict"] in ("KEEP", "DISCARD")


def test_the_number_of_candidates_that_were_looked_at_is_said(spec, capfd):
    finalists = {"top": 3, "seeds": FEWEST}
    assert run(capfd, "run", spec(finalists=finalists), "--id", "s").code == 0
    answer = run(capfd, "verdict", "s/t0001", "s/t0002", "-o", "json").data
    assert (answer["looks"], answer["by_chance"]) == (2, 0.1)
    assert "One of 2 candidates, of which chance keeps 0.1 at most" in answer["sentence"]


def test_a_retest_that_can_not_be_is_refused_with_what_to_do(spec, capfd):
    budget = {"budget": {"cpu_hours": 3.5 / 3600}, "trials": {"max": 3}}
    run(capfd, "run", spec(**budget), "--id", "s")
    for change, said in (
        ("seeds.t0009=6", "seeds.t0009: there is no such trial"),
        ("seeds.t0001=0", "give a number of trainings, 1 to 1000"),
        ("seeds.t0001=true", "give a number of trainings, 1 to 1000"),
        ("seeds.t0001=6", "give more by --set budget.cpu_hours=..."),
    ):
        ended = run(capfd, "extend", "s", "--set", change)
        assert ended.code == 2, change
        assert said in ended.err


def test_replicates_of_finalists_decide(spec, capfd):
    finalists = {"top": 2, "seeds": FEWEST}
    assert run(capfd, "run", spec(finalists=finalists), "--id", "s").code == 0
    shown = SimpleNamespace(**run(capfd, "verdict", "s/t0002", "s/t0003", "-o", "json").data)
    other = run(capfd, "verdict", "s/t0003", "s/t0002", "-o", "json")
    assert {shown.verdict, other.data["verdict"]} == {"KEEP", "DISCARD"}
    assert shown.pairs == FEWEST
    first_to_last = [
        run(capfd, "verdict", *names).out
        for names in (("s/t0002", "s/t0003"), ("s/t0003", "s/t0002"))
    ]
    assert sorted("it is worse" in words for words in first_to_last) == [False, True]
    assert other.code == {"KEEP": 0, "DISCARD": 20}[other.data["verdict"]]


def test_trials_that_no_run_could_tell_apart_are_refused(spec, capfd):
    """No fork trains a trial again that has no value, so RETEST would be said for ever."""
    limits = [f"{SPEC['metric']['name']} <= -1e9"]
    run(capfd, "run", spec(limits=limits), "--id", "s")
    for first, second, said in (
        ("t0001", "t0001", "s/t0001 is compared with itself"),
        ("t0001", "t0002", "s/t0001 is beyond a limit, so it can't be compared"),
    ):
        ended = run(capfd, "verdict", f"s/{first}", f"s/{second}")
        assert ended.code == 2
        assert said in ended.err


def test_names_that_are_none_are_refused(spec, capfd):
    run(capfd, "run", spec(), "--id", "s")
    assert run(capfd, "verdict", "s/t0001", "s/t0009").code == 4
    assert run(capfd, "verdict", "s", "s/t0001").code == 2
