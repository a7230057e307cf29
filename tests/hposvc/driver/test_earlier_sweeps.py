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
    return make_spec(**{"trials": TRIALS, "search": "gp", **sections})


def done(sweeps, name, spec):
    row = api.create(sweeps, spec, name)
    Lab(sweeps.journal, sweeps.home.path).run(specs.restore(row.spec), name)


def rates(params, step):
    return {"loss": (params.get("lr", 0.0) - 0.02) ** 2 + 1 / step}, 1.0


def found_by(sweeps, **sections):
    row = api.create(sweeps, make(**sections))
    warm = specs.restore(row.spec).warm_start
    return warm and list(warm.sweeps)


def test_sweeps_of_the_same_task_are_found_the_newest_first(sweeps):
    for name in ("first", "second"):
        done(sweeps, name, make())
    done(sweeps, "elsewhere", make(project="other"))
    done(sweeps, "uphill", make(metric={"name": "loss", "goal": "maximize"}))
    done(sweeps, "several", make_several(trials=TRIALS))
    done(sweeps, "short", make(trials={"max": 3}))
    other = {"type": "simulate", "curve": "test_earlier_sweeps:rates"}
    done(sweeps, "other-code", make(engine=other))
    for auto in ({}, {"warm_start": "auto"}, {"warm_start": {"from": "auto", "top": 2}}):
        assert found_by(sweeps, **auto) == ["second", "first"]
    assert found_by(sweeps, warm_start=None) is None


def test_the_first_sweep_of_a_home_learns_from_none_without_a_word(sweeps, caplog):
    row = api.create(sweeps, make())
    assert row.spec == specs.dump(make())
    assert load_warm_start(sweeps.journal, specs.restore(row.spec)) is None
    assert not caplog.records


@pytest.mark.parametrize(
    "changes",
    [
        {"search": "tpe"},
        {"search": "grid", "parameters": {"lr": {"values": [1e-3, 1e-2]}}},
        {"limits": ["loss <= 20"]},
        {
            "metric": None,
            "metrics": [
                {"name": "loss", "goal": "minimize"},
                {"name": "speed", "goal": "maximize"},
            ],
        },
    ],
)
def test_none_are_found_where_nothing_is_learned_or_results_are_believed(sweeps, changes):
    """With limits or several metrics, earlier results count like this sweep's own."""
    done(sweeps, "before", make(warm_start=None, **changes))
    assert found_by(sweeps, **changes) == []


def test_what_a_found_sweep_has_trained_may_be_trained_again(sweeps):
    """Otherwise the same sweep again would be worse than before, and in a small space have none."""
    parameters = {"lr": {"values": [10**-power for power in range(1, 13)]}}
    done(sweeps, "before", make(parameters=parameters))
    row = api.create(sweeps, make(parameters=parameters, tracking={"send_to": []}), "again")
    state = api.drive(sweeps, row).state
    assert state.spec.warm_start.sweeps == ("before",)
    assert len(state.trials) == 12
    before = api.load(sweeps, "before").state
    assert state.trials["t0001"].params == before.trials[before.best].params


def test_long_journals_are_not_read(sweeps, monkeypatch):
    """Recording a sweep must not take minutes."""
    for name in ("first", "second", "third"):
        done(sweeps, name, make(trials={"max": 12 if name != "second" else 40}))
    length = sweeps.journal.listed(["third"])["third"].seq
    monkeypatch.setattr("hposvc.driver.earlier_sweeps.READ", 2 * length - 1)
    assert found_by(sweeps) == ["third"]


def test_what_was_found_does_not_change_with_later_sweeps(sweeps):
    """Otherwise the same seed would give other proposals after every sweep of the home."""
    done(sweeps, "before", make())
    api.create(sweeps, make(warm_start="auto", seed=1), "after")
    done(sweeps, "later", make(seed=2))
    spec = specs.restore(sweeps.journal.find("after").spec)
    assert spec.warm_start.sweeps == ("before",)
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
    text = "24 trials of second, first"
    panel = status_view("after", record.state, "none", terminal=True)
    assert f"learns from {text}" in text_of(panel)
    events = [event for _, event in sweeps.journal.read("after")]
    [line] = of_sweep(specs.restore(row.spec), events)
    assert (line.what, line.why) == ("warm-started", text)


def test_a_sweep_with_the_roles_of_this_one_is_found_and_translated(sweeps):
    """A parameter that was renamed since is the same parameter."""

    def parameters(name):
        trees = {"trees": {"min": 50, "max": 500, "type": "int"}}
        return {name: LR, **trees, "max_leaves": {"min": 4, "max": 64, "type": "int"}}

    engine = {"type": "simulate", "curve": "test_earlier_sweeps:rates"}
    done(sweeps, "before", make(engine=engine, parameters=parameters("learning_rate")))
    spec = make(engine=engine, parameters=parameters("lr"), warm_start="auto")
    row = api.create(sweeps, spec, "after")
    assert row.spec["warm_start"]["found"] == ["before"]
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


def test_a_spec_that_learns_from_none_can_be_sent():
    spec = make(warm_start=None)
    assert specs.given(spec)["warm_start"] is None
    assert specs.load(specs.given(spec)).warm_start is None
