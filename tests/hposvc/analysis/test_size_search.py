"""What is said of a sweep over sizes. If it fails, people train a large model the wrong way."""

import math

import numpy as np
import pytest
from simulated_sweeps import Lab, fold
from sized_sweeps import PARAMETERS, WIDTHS, above, best_lr, sized_spec

from hposvc.analysis.findings import why, worth
from hposvc.analysis.size_search import judge
from hposvc.events import Proposed


def run(tmp_path, curve="following", **sections):
    """Run a simulated sweep over sizes, and return its state."""
    spec, lab = sized_spec(curve, **sections), Lab.at(tmp_path)
    state = lab.run(spec)
    assert state.state == "COMPLETED"
    return state


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return the spec of a sweep whose optima follow a law, and its events."""
    spec, lab = sized_spec(), Lab.at(tmp_path_factory.mktemp("recorded"))
    lab.run(spec)
    return spec, lab.events()


@pytest.fixture(scope="module")
def followed(recorded):
    return fold(*recorded)


def before(recorded, trials):
    """Return the state of the recorded sweep before it proposed the next trial after so many."""
    spec, events = recorded
    proposed = [index for index, event in enumerate(events) if isinstance(event, Proposed)]
    return fold(spec, events[: proposed[trials]])


def test_it_says_how_near_to_the_best_the_target_is(followed):
    found = judge(followed, "s")
    assert found.answer == "within"
    target = found.sizes[-1]
    assert (target.size, len(target.configs)) == (2048, 2)
    tried = followed.trials[target.tried].params
    best = {"lr": best_lr(2048), "decay": 0.1}
    assert above(tried, best["lr"]) <= found.within < 0.03
    assert found.sentence.startswith(f"{target.tried} at width 2048 is within 0.0")
    assert found.sentence.endswith("of the best loss there, 90 % sure.")


def test_best_values_by_size_follow_the_law_within_their_intervals(followed):
    found = judge(followed, "s")
    assert [each.size for each in found.sizes] == WIDTHS
    assert sum(len(each.configs) for each in found.sizes) == 40
    for each in found.sizes:
        assert each.best.keys() == {"lr", "decay"}
        lr = each.best["lr"]
        assert lr.low <= lr.value <= lr.high
        assert abs(math.log10(lr.value / best_lr(each.size))) < 0.2
        assert lr.low / 1.1 < best_lr(each.size) < lr.high * 1.1
    assert found.proposed["width"] == 2048
    assert found.proposed["lr"] == pytest.approx(found.sizes[-1].best["lr"].value)


def test_the_trial_named_is_expected_to_be_the_best_of_its_size(followed):
    found = judge(followed, "s")
    for each in found.sizes:
        own = {t.id: t for t in followed.trials.values() if t.params["width"] == each.size}
        assert len(own) == len(each.configs)
        named = above(own[each.tried].params, best_lr(each.size))
        losses = [above(trial.params, best_lr(each.size)) for trial in own.values()]
        assert named <= np.median(losses)
        assert named - min(losses) < 0.01


def test_where_the_optimum_jumps_it_cannot_tell_and_says_where(tmp_path):
    found = judge(run(tmp_path, "jumping"), "s")
    assert found.answer == "cannot tell"
    assert (
        found.sentence == f"Cannot tell how near to the best of width 2048 it is: {found.reason}."
    )
    assert found.reason in (
        "the optimum moves between 512 and 1024 otherwise than the other sizes say",
        "the optimum moves between 256 and 512 otherwise than the other sizes say",
    )


def test_levels_of_sizes_need_not_follow_a_law(tmp_path):
    """Only where their optima lie counts."""
    assert judge(run(tmp_path, "stepped"), "s").answer == "within"


def test_a_goal_to_maximize_is_judged_alike(tmp_path):
    state = run(tmp_path, "scored", metric={"name": "score", "goal": "maximize"})
    found = judge(state, "s")
    assert found.answer == "within"
    assert found.metric == "score"
    assert above(found.proposed, best_lr(2048)) < 0.02


def test_failed_and_diverged_trials_do_not_count(tmp_path):
    state = run(tmp_path, "failing", failure={"user_retries": 0})
    states = [trial.state for trial in state.trials.values()]
    assert states.count("COMPLETED") < 36
    found = judge(state, "s")
    assert sum(len(each.configs) for each in found.sizes) == sum(
        trial.value is not None for trial in state.trials.values()
    )
    assert above(found.proposed, best_lr(2048)) < 0.03


def test_before_anything_was_trained_at_the_target_it_judges_the_proposal(recorded):
    found = judge(before(recorded, 36), "s")
    assert found.sizes[-1].tried == ""
    assert found.sizes[-1].configs == ()
    assert (
        "Nothing was trained at width 2048 yet; what the law proposes is within" in found.sentence
    )
    assert above(found.proposed, best_lr(2048)) <= found.within


def test_fewer_trials_are_less_sure(recorded, followed):
    assert judge(before(recorded, 12), "s").within > 5 * judge(followed, "s").within


def test_too_few_results_have_no_law(recorded):
    assert judge(before(recorded, 4), "s") is None


def test_it_is_the_same_each_time(followed):
    assert judge(followed, "s") == judge(followed, "s")


def test_the_data_is_what_the_sentence_says(followed):
    found = judge(followed, "s")
    data = found.data()
    assert data["sweep"] == "s"
    assert (data["over"], data["metric"], data["answer"]) == ("width", "loss", "within")
    assert data["within"] == found.within
    assert data["sizes"][-1]["best"]["lr"]["mean"] == found.sizes[-1].best["lr"].value


def test_categories_and_shares_are_proposed_too(tmp_path):
    parameters = {
        **PARAMETERS,
        "optimizer": {"values": ["adam", "sgd"]},
        "mix": {"shares": ["web", "code"]},
    }
    trials = {"max": 24, "parallel": 2}
    found = judge(run(tmp_path, "mixed", parameters=parameters, trials=trials), "s")
    assert found.proposed["optimizer"] == "adam"
    assert found.proposed["mix.web"] == pytest.approx(0.6, abs=0.2)
    assert "optimizer" not in found.sizes[-1].best


def test_the_end_of_a_sweep_says_it_too(followed):
    sentence = judge(followed, "").sentence
    assert worth(followed)[-1] == sentence
    (further,) = [finding for finding in why("s", followed) if finding.topic == "next"]
    assert sentence in further.sentence
