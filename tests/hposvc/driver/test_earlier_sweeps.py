"""`warm_start: auto`: which earlier sweeps a new sweep finds, and that they stay the same."""

import sys
from pathlib import Path

import pytest
from audits import of_sweep
from printed import text_of
from simulated_sweeps import Lab, make_several, make_spec

from hposvc import api
from hposvc import spec as specs
from hposvc.driver.earlier_sweeps import alike, overlap
from hposvc.driver.warm_start import load_warm_start
from hposvc.events import WarmStarted
from hposvc.journal.journal import SweepRow
from hposvc.verbs.rm import remove
from hposvc.views.dashboard import status_view
from searchers.space import Space
from searchers.translation import names_by_role

sys.path.insert(0, str(Path(__file__).parent))  # specs name functions of this file

LR = {"min": 1e-5, "max": 1e-1, "log": True}
TRIALS = {"max": 12, "parallel": 4}


def make(**sections):
    return make_spec(**{"trials": TRIALS, **sections})


def done(sweeps, name, spec):
    row = api.create(sweeps, spec, name)
    Lab(sweeps.journal, sweeps.home.path).run(specs.restore(row.spec), name)


def rates(params, step):
    return {"loss": (params.get("lr", 0.0) - 0.02) ** 2 + 1 / step}, 1.0


def found_by(sweeps, spec):
    return api.create(sweeps, spec).spec["warm_start"]


def test_sweeps_of_the_same_task_are_found_the_newest_first(sweeps):
    for name in ("first", "second"):
        done(sweeps, name, make())
    done(sweeps, "elsewhere", make(project="other"))
    done(sweeps, "uphill", make(metric={"name": "loss", "goal": "maximize"}))
    done(sweeps, "several", make_several(trials=TRIALS))
    done(sweeps, "short", make(trials={"max": 3}))
    other = {"type": "simulate", "curve": "test_earlier_sweeps:rates"}
    done(sweeps, "other-code", make(engine=other))
    for auto in ("auto", {"from": "auto"}):
        assert found_by(sweeps, make(warm_start=auto)) == {"from": ["second", "first"], "top": 0}
    assert found_by(sweeps, make(warm_start={"from": "auto", "top": 2}))["top"] == 2


def test_without_an_earlier_sweep_it_is_as_without_the_key(sweeps, caplog):
    """`auto` in a file that many use must not change a home's first sweep."""
    auto = api.create(sweeps, make(warm_start={"from": "auto", "top": 3}, seed=3))
    assert auto.spec == specs.dump(make(seed=3))
    assert "nothing to learn from, as no sweep in" in caplog.text


def test_what_was_found_does_not_change_with_later_sweeps(sweeps):
    """Otherwise the same seed would give other proposals after every sweep of the home."""
    done(sweeps, "before", make())
    api.create(sweeps, make(warm_start="auto", seed=1), "after")
    done(sweeps, "later", make(seed=2))
    spec = specs.restore(sweeps.journal.find("after").spec)
    assert spec == make(warm_start={"from": "before"}, seed=1)
    assert {seen.id.split("/")[0] for seen in load_warm_start(sweeps.journal, spec)} == {"before"}


def test_a_sweep_that_was_found_and_deleted_since_is_passed_over(sweeps, caplog):
    """Nobody named it, so nobody could know that the new sweep needs it."""
    for name in ("a", "b"):
        done(sweeps, name, make())
    done(sweeps, "b-other", make(project="other"))  # no stand-in for b
    row = api.create(sweeps, make(warm_start="auto"), "after")
    remove(sweeps, "b")
    spec = specs.restore(row.spec)
    assert spec.warm_start.sweeps == ("b", "a")
    assert {seen.id.split("/")[0] for seen in load_warm_start(sweeps.journal, spec)} == {"a"}
    assert "b was deleted before this sweep began" in caplog.text


def test_a_choice_of_the_same_role_with_other_spellings_is_not_renamed():
    """`SGD` is no value of [sgd, adamw]: renamed, it would rule out every trial."""
    common = {"lr": LR, "dropout": {"min": 0.0, "max": 0.5}}
    ours = Space.from_dict({**common, "optimizer": {"values": ["sgd", "adamw"]}})
    shouted = Space.from_dict({**common, "opt": {"values": ["SGD", "AdamW"]}})
    same = Space.from_dict({**common, "opt": {"values": ["sgd", "lion"]}})
    assert names_by_role(shouted, ours) == {}
    assert names_by_role(same, ours) == {"opt": "optimizer"}


def test_status_and_audit_say_what_was_taken_from_where(sweeps):
    """Otherwise nobody knows what a sweep with `auto` has learned."""
    for name in ("first", "second"):
        done(sweeps, name, make())
    spec = make(warm_start="auto")
    row = api.create(sweeps, spec, "after")
    taken = load_warm_start(sweeps.journal, specs.restore(row.spec))
    sweeps.journal.append("after", 0, [WarmStarted(0.0, taken)])
    record = api.load(sweeps, "after")
    assert record.status().learned_from == {"second": 12, "first": 12}
    text = "12 trials of second, 12 trials of first"
    panel = status_view("after", record.state, "none", terminal=True)
    assert f"learns from {text}" in text_of(panel)
    events = [event for _, event in sweeps.journal.read("after")]
    [line] = of_sweep(specs.restore(row.spec), events)
    assert (line.what, line.why) == ("warm-started", f"24 trials of earlier sweeps: {text}")


def test_a_sweep_with_the_roles_of_this_one_is_found_and_translated(sweeps):
    """A parameter that was renamed since is the same parameter."""

    def parameters(name):
        trees = {"trees": {"min": 50, "max": 500, "type": "int"}}
        return {name: LR, **trees, "max_leaves": {"min": 4, "max": 64, "type": "int"}}

    engine = {"type": "simulate", "curve": "test_earlier_sweeps:rates"}
    done(sweeps, "before", make(engine=engine, parameters=parameters("learning_rate")))
    spec = make(engine=engine, parameters=parameters("lr"), warm_start="auto")
    row = api.create(sweeps, spec, "after")
    assert row.spec["warm_start"]["from"] == ["before"]
    earlier = load_warm_start(sweeps.journal, specs.restore(row.spec))
    theirs = api.load(sweeps, "before").state.trials.values()
    assert [seen.params["lr"] for seen in earlier] == [
        trial.params["learning_rate"] for trial in theirs
    ]


@pytest.mark.parametrize(
    ("theirs", "share"),
    [
        ({"lr": LR, "depth": {"min": 1, "max": 9, "type": "int"}}, 1.0),
        ({"lr": {"min": 1e-3, "max": 2e-3}}, 0.5),
        ({"lr": LR, "depth": {"values": ["deep", "flat"]}}, 0.5),
        ({"width": LR}, 0.0),
    ],
)
def test_the_overlap_counts_searched_parameters_with_common_values(theirs, share):
    ours = Space.from_dict({"lr": LR, "depth": {"min": 1, "max": 9, "type": "int"}})
    assert overlap(Space.from_dict(theirs), ours) == share


def row(name, **keys):
    data = {**specs.dump(make()), "engine": {"type": "local"}, **keys}
    return SweepRow(name, name, "default", 0.0, data, {})


NET = {"trainable": "models:Net"}
TORCHRUN = {"command": ["torchrun", "train.py", "--fast"]}


@pytest.mark.parametrize(
    ("theirs", "ours", "same"),
    [
        (*({"trainable": f"/{name}/train.py:Net", "folder": f"/{name}"} for name in "ab"), True),
        (NET, {"trainable": "models:Other"}, False),
        ({"command": ["python", "train.py", "${args}"]}, TORCHRUN, True),
        (*({"command": ["python", "-m", name]} for name in ("train", "other")), False),
        ({"command": ["models:Net"]}, NET, False),
    ],
)
def test_code_is_the_same_by_its_name_wherever_it_is(theirs, ours, same):
    spec = specs.thaw(row("ours", **ours).spec)
    assert bool(alike([row("theirs", **theirs)], spec)) == same
