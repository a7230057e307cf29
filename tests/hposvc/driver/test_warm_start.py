"""Warm start: which trials a sweep learns from, how they are translated, and resumes."""

import json
import math
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_sweeps import Lab, at_desk, make_several, make_spec
from sqlalchemy import delete

from hposvc import api
from hposvc import spec as specs
from hposvc.driver.proposals import TRIED, propose
from hposvc.driver.warm_start import leading, load_warm_start, resolve, translate_params
from hposvc.errors import Interrupted, NotFound, SpecError
from hposvc.events import WarmStarted
from hposvc.journal.database import SWEEPS
from hposvc.operations.start import fork_data
from searchers.random_search import Random
from searchers.searcher import Observation
from searchers.space import Space

sys.path.insert(0, str(Path(__file__).parent))  # specs name functions of this file

MANY = {"max": 60, "parallel": 8}
NOWHERE = {"send_to": []}  # what a sweep learns from is in the journal
LR = {"min": 1e-5, "max": 1e-1, "log": True}


@pytest.fixture
def sweeps(tmp_path):
    return api.Sweeps.open(tmp_path / "home")


def done(sweeps, name, spec):
    return api.drive(sweeps, api.create(sweeps, spec, name))


def make(**sections):
    return make_spec(**{"trials": MANY, "tracking": NOWHERE, **sections})


@dataclass(frozen=True)
class Wise:
    """A search method that notes how many earlier results it knows."""

    known: int = 0

    def after(self, earlier):
        return replace(self, known=len(earlier))

    def suggest(self, space, history, n, rng):
        new = Random().suggest(space, history, n, rng)
        return [replace(proposal, note={"known": self.known}) for proposal in new]


def test_the_best_of_before_are_tried_first_and_the_searcher_knows_the_rest(sweeps):
    """The point of a warm start: no trial is spent on known configurations."""
    before = done(sweeps, "before", make(scheduler="asha"))
    warm = {"from": "bef", "top": 3}
    spec = make(warm_start=warm, initial=[{"lr": 0.1}], search="test_warm_start:Wise", seed=1)
    after = done(sweeps, "after", spec)
    trials = list(after.state.trials.values())
    ranked = sorted(before.state.trials.values(), key=lambda trial: trial.loss)
    assert trials[0].params == {"lr": 0.1}
    assert [trial.params for trial in trials[1:4]] == [trial.params for trial in ranked[:3]]
    assert [trial.note for trial in trials[3:5]] == [
        {"source": "warm_start"},
        {"known": MANY["max"]},
    ]
    assert after.row.spec["warm_start"] == {"from": ["before"], "top": 3}


class Impatient:
    """A watcher that presses Ctrl-C after twenty trials."""

    pressed = False

    def turn(self, state, events):
        if len(state.trials) > 20 and not self.pressed:
            self.pressed = True
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("search", ["random", "sobol", "grid", "gp", "auto", "tpe", "cmaes"])
def test_a_fork_goes_on(sweeps, search):
    parameters = {"lr": LR, "depth": {"min": 1, "max": 4, "type": "int"}}
    spec = make(parameters=parameters, search=search, initial=[{"lr": 1e-2, "depth": 2}])
    spec = replace(spec, trials=replace(spec.trials, max=6))
    first = done(sweeps, "first", spec)
    forked = done(sweeps, "forked", api.validate(fork_data(first), {}))
    tried = [seen.params for record in (first, forked) for seen in record.state.history()]
    assert len({spec.space.key(params) for params in tried}) == len(tried) == 12


@pytest.mark.parametrize("trials", [1, 2, 6])
def test_a_fork_keeps_a_baseline_that_was_the_first_of_initial(sweeps, trials):
    points = [{"lr": 1e-2}, {"lr": 1e-3}, {"lr": 1e-4}]
    spec = make(initial=points, baseline={"seeds": 2})
    first = done(sweeps, "first", replace(spec, trials=replace(spec.trials, max=trials)))
    forked = api.validate(fork_data(first), {})
    assert forked.baseline.params == points[0]
    assert list(forked.initial) == points[trials:]


def test_a_fork_of_a_sweep_that_tried_everything_says_so(sweeps):
    spec = make(parameters={"lr": 0.1, "depth": {"values": [1, 2]}}, search="grid")
    first = done(sweeps, "first", spec)
    forked = done(sweeps, "forked", api.validate(fork_data(first), {}))
    assert forked.state.state == "FAILED"
    assert forked.state.reason == (
        "no trial ran: the earlier sweeps have tried every configuration"
    )


@pytest.mark.parametrize(
    ("change", "is_tried"),
    [
        ({}, True),
        ({"seed": 3, "search": "sobol", "scheduler": "asha"}, True),
        ({"parameters": {"lr": LR, "depth": 3}}, False),
        ({"parameters": {"lr": LR, "depth": 2, "width": {"min": 1, "max": 9}}}, False),
        ({"fidelity": {"max": 27}}, False),
        ({"engine": {"type": "simulate", "curve": "simulated_sweeps:slow"}}, False),
    ],
    ids=str,
)
def test_a_configuration_is_tried_if_it_was_trained_in_the_same_way(sweeps, change, is_tried):
    parameters = {"lr": LR, "depth": 2}
    done(sweeps, "before", make(parameters=parameters))
    spec = make(**{"parameters": parameters, **change}, warm_start={"from": "before"})
    earlier = load_warm_start(sweeps.journal, resolve(sweeps.journal, spec))
    assert {TRIED in seen.note for seen in earlier} == {is_tried}


def test_a_resumed_sweep_learns_the_same_though_the_other_is_gone(sweeps):
    """Proposals must not depend on when a driver died."""
    done(sweeps, "before", make())
    row = api.create(sweeps, make(warm_start={"from": "before"}), "after")
    with pytest.raises(Interrupted):
        api.drive(sweeps, row, [Impatient()])
    journal = sweeps.journal
    [earlier] = [
        event.trials for _, event in journal.read("after") if isinstance(event, WarmStarted)
    ]
    assert len(earlier) == MANY["max"]
    with journal.store.writing() as connection:
        connection.execute(delete(SWEEPS).where(SWEEPS.c.id == "before"))
    record = api.resume(sweeps, "after")
    assert (record.state.state, record.state.earlier) == ("COMPLETED", earlier)
    assert sum(isinstance(event, WarmStarted) for _, event in journal.read("after")) == 1


def test_a_sweep_that_is_not_there_is_told_before_anything_is_recorded(sweeps):
    with pytest.raises(NotFound, match="nobody: no such sweep"):
        api.create(sweeps, make(warm_start={"from": "nobody"}), "after")
    assert sweeps.journal.sweeps() == []


def test_a_misspelt_auto_is_told_with_its_place(sweeps, tmp_path):
    file = tmp_path / "sweep.yaml"
    data = {**specs.dump(make()), "warm_start": {"from": "auot"}}
    file.write_text(json.dumps(data, indent=1))
    line = 1 + file.read_text()[: file.read_text().index("auot")].count("\n")
    message = rf"sweep\.yaml:{line}:\d+: warm_start\.from: auot: no such sweep.*mean 'auto'\?"
    with pytest.raises(NotFound, match=message):
        api.create(sweeps, specs.load(file))


def test_two_names_of_one_sweep_are_one_sweep(sweeps):
    """The recorded spec could not be read again: it would name a sweep twice."""
    done(sweeps, "before", make())
    row = api.create(sweeps, make(warm_start={"from": ["last", "before"]}), "after")
    assert specs.restore(row.spec).warm_start.sweeps == ("before",)


def test_other_metrics_are_refused_by_name(sweeps):
    done(sweeps, "before", make())
    spec = make_several(trials=MANY, tracking=NOWHERE, warm_start={"from": "before"})
    message = r"warm_start\.from: is before, which has no results of speed, .* it optimised loss"
    with pytest.raises(SpecError, match=message):
        api.create(sweeps, spec)


def test_of_several_metrics_one_can_be_taken_up(sweeps):
    before = done(sweeps, "before", make_several(trials=MANY, tracking=NOWHERE))
    spec = make(metric={"name": "speed", "goal": "minimize"}, warm_start={"from": "before"})
    seen = {observation.id: observation for observation in load_warm_start(sweeps.journal, spec)}
    for trial in before.state.trials.values():
        actual = seen[f"before/{trial.id}"]
        expected = ("failed", None) if trial.diverged else ("done", trial.values[1])
        assert (actual.state, actual.loss) == expected
        assert actual.losses == ()


def test_limits_are_those_of_this_sweep(sweeps):
    done(sweeps, "before", make_several(trials=MANY, tracking=NOWHERE))
    spec = make(warm_start={"from": "before"}, limits=["speed >= -7"])
    seen = [
        observation
        for observation in load_warm_start(sweeps.journal, spec)
        if observation.loss is not None
    ]
    assert {observation.excess[0] <= 0 for observation in seen} == {True, False}
    unknown = make(warm_start={"from": "before"}, limits=["size <= 1"])
    assert {observation.excess for observation in load_warm_start(sweeps.journal, unknown)} == {()}


def uneven(params, step):
    """Loss falls, rises and falls again; one trial in three diverges or fails, early or late."""
    kind = int(params["lr"] * 1e9) % 12
    if kind in (0, 1) and step == (3, 20)[kind]:
        return {"loss": math.nan, "speed": 0.0}, 1.0
    if kind in (2, 3) and step == (3, 20)[kind - 2]:
        raise RuntimeError(f"no luck at step {step}")
    loss = math.log10(params["lr"]) + math.sin(step * (kind + 1)) - step / 10
    return {"loss": loss, "speed": kind + step, "size": kind * step}, 1.0


@pytest.mark.parametrize("select", ["last", "best", "mean_3", None])
def test_of_a_longer_sweep_counts_what_a_trial_here_can_reach(sweeps, tmp_path, select):
    """Otherwise a model would target a step that no trial here reaches."""
    metrics = [{"name": "loss", "goal": "minimize"}, {"name": "speed", "goal": "maximize"}]
    sections = {"metric": {**metrics[0], "select": select}} if select else {}
    sections |= {} if select else {"metric": None, "metrics": metrics}
    sections |= {
        "engine": {"type": "simulate", "curve": "test_warm_start:uneven"},
        "trials": {"max": 40},
        "seed": 1,
    }
    for name, last in (("short", 9), ("long", 24)):
        row = api.create(sweeps, make_spec(fidelity={"max": last}, **sections), name)
        Lab(sweeps.journal, tmp_path).run(specs.restore(row.spec), name)
    learned = {}
    for name in ("short", "long"):
        warm = {"from": name, "top": 3}
        spec = make_spec(warm_start=warm, limits=["size <= 60"], **sections)
        earlier = load_warm_start(sweeps.journal, spec)
        observations = {seen.id: replace(seen, id="", cost=None, note={}) for seen in earlier}
        learned[name] = (
            {key.split("/")[1]: seen for key, seen in observations.items()},
            leading(spec, earlier),
        )
    assert learned["long"] == learned["short"]
    assert {seen.state for seen in learned["long"][0].values()} == {"done", "failed"}
    assert {seen.excess[0] > 0 for seen in learned["long"][0].values() if seen.excess} == {
        True,
        False,
    }


def test_what_was_reported_only_later_is_no_result(sweeps):
    """A trial here ends before it could be compared."""
    their_spec = make(fidelity={"max": 100})
    desk = at_desk(fidelity={"max": 100})
    order = desk.start()
    desk.report(order, 10, 0.5)
    desk.report(order, 100, 0.25)
    desk.end(order)
    api.create(sweeps, their_spec, "before")
    sweeps.journal.append("before", 0, desk.log)
    for last, curves in ((9, []), (10, [((10, 0.5),)]), (100, [((10, 0.5), (100, 0.25))])):
        spec = make(warm_start={"from": "before"}, fidelity={"max": last})
        assert [seen.curve for seen in load_warm_start(sweeps.journal, spec)] == curves


def test_another_unit_of_steps_is_named(sweeps, caplog):
    """Epochs taken for batches would mislead the search silently."""
    done(sweeps, "before", make(fidelity={"max": 9, "unit": "epoch"}))
    load_warm_start(
        sweeps.journal, make(warm_start={"from": "before"}, fidelity={"max": 9, "unit": "epoch"})
    )
    assert "fidelity.unit" not in caplog.text
    load_warm_start(
        sweeps.journal, make(warm_start={"from": "before"}, fidelity={"max": 9, "unit": "batch"})
    )
    assert "fidelity.unit of before is epoch, and here it is batch" in caplog.text


def test_a_sweep_of_which_nothing_can_be_learned_is_named(sweeps, caplog):
    done(sweeps, "before", make())
    for parameters in ({"lr": {"min": 0.5, "max": 0.9}}, {"depth": {"min": 1, "max": 9}}):
        caplog.clear()
        spec = make(warm_start={"from": "before"}, parameters=parameters)
        assert load_warm_start(sweeps.journal, spec) == ()
        assert "no trial of before has a result that this space can hold" in caplog.text


def test_the_name_of_a_data_set_may_differ_where_both_sweeps_give_one(sweeps):
    """A sweep of the same model on other data is what a warm start is for most of all."""
    lr = {"min": 1e-5, "max": 1e-1, "log": True}
    done(sweeps, "before", make(parameters={"lr": lr, "data": "wine"}))
    warm = {"from": "before"}
    same = make(warm_start=warm, parameters={"lr": lr, "data": "wine"})
    other = make(warm_start=warm, parameters={"lr": lr, "data": "digits"})
    searched = make(warm_start=warm, parameters={"lr": lr, "data": {"values": ["digits", "iris"]}})
    known = load_warm_start(sweeps.journal, same)
    assert len(known) == MANY["max"]
    assert load_warm_start(sweeps.journal, other) == tuple(
        replace(seen, params={**seen.params, "data": "digits"}, note={}) for seen in known
    )
    assert load_warm_start(sweeps.journal, searched) == ()  # their data is none of these


def fragile(params, step):
    """Return a loss; larger rates diverge with the larger batch."""
    fails = params["batch"] == 512 and params["lr"] > 1e-3
    return {"loss": math.nan if fails else params["lr"] + 1 / step, "speed": 1.0}, 1.0


def test_failures_under_other_constants_are_not_those_of_this_sweep(sweeps):
    """A sweep forked with a smaller batch must not shun where the larger one did not fit."""
    engine = {"type": "simulate", "curve": "test_warm_start:fragile"}
    parts = {"engine": engine, "trials": {"max": 30, "parallel": 3}}
    done(sweeps, "before", make(parameters={"lr": LR, "batch": 512}, **parts))
    warm = {"from": "before"}
    same = make(parameters={"lr": LR, "batch": 512}, warm_start=warm, **parts)
    known = load_warm_start(sweeps.journal, same)
    assert {seen.state for seen in known} == {"done", "failed"}
    other = make(parameters={"lr": LR, "batch": 64}, warm_start=warm, **parts)
    assert load_warm_start(sweeps.journal, other) == tuple(
        replace(seen, params={**seen.params, "batch": 64}, note={})
        for seen in known
        if seen.state == "done"
    )


def test_with_limits_trials_of_other_constants_are_left_out(sweeps):
    """They would count like this sweep's own, on a level that it may never reach."""
    parts = {"limits": ["loss <= 3"], "trials": {"max": 10}}
    done(sweeps, "before", make(parameters={"lr": LR, "data": "wine"}, **parts))
    warm = {"from": "before"}
    for data, taken in (("wine", 10), ("digits", 0)):
        spec = make(parameters={"lr": LR, "data": data}, warm_start=warm, **parts)
        assert len(load_warm_start(sweeps.journal, spec)) == taken


@pytest.mark.parametrize(
    ("search", "top", "is_told"),
    [("random", 0, True), ("random", 3, False), ("test_warm_start:Wise", 0, False)],
)
def test_a_method_that_learns_nothing_from_before_is_named(sweeps, caplog, search, top, is_told):
    """Otherwise a warm start without effect looks like one that worked."""
    done(sweeps, "before", make())
    warm = {"from": "before", "top": top}
    done(sweeps, "after", make(search=search, warm_start=warm))
    messages = [record.message for record in caplog.records if "warm_start:" in record.message]
    message = "search method random learns nothing from earlier trials; choose one of auto, gp, or"
    assert len(messages) == is_told
    assert all(message in text for text in messages)


def test_the_whole_id_is_frozen(sweeps):
    """`last` means another sweep tomorrow."""
    done(sweeps, "before", make())
    spec = resolve(sweeps.journal, make(warm_start={"from": ["last"]}))
    assert spec.warm_start.sweeps == ("before",)


HERE = Space.from_dict(
    {
        "lr": LR,
        "batch": {"values": [32, 64, 128], "ordered": True},
        "optimizer": {"values": ["sgd", "adamw"]},
        "momentum": {"min": 0.0, "max": 1.0, "when": {"optimizer": "sgd"}},
        "width": 64,
    },
    ["batch * lr <= 12"],
)


@pytest.mark.parametrize(
    ("params", "here"),
    [
        (
            {"lr": 0.01, "batch": 32, "optimizer": "adamw", "depth": 3},
            {"lr": 0.01, "batch": 32, "optimizer": "adamw", "width": 64},
        ),
        (
            {"lr": 0.01, "optimizer": "sgd"},
            {"lr": 0.01, "batch": 64, "optimizer": "sgd", "momentum": 0.5, "width": 64},
        ),
        (
            {"lr": 0.01, "batch": 32, "optimizer": "adamw", "momentum": 0.9},
            {"lr": 0.01, "batch": 32, "optimizer": "adamw", "width": 64},
        ),
        (
            {"lr": 1e-2, "batch": 32.0, "optimizer": "adamw"},
            {"lr": 0.01, "batch": 32, "optimizer": "adamw", "width": 64},
        ),
        ({"depth": 3, "width": 64}, None),
        ({"lr": 1.0, "batch": 32, "optimizer": "adamw"}, None),
        ({"lr": 0.01, "batch": 32, "optimizer": "lion"}, None),
        ({"lr": 0.01, "batch": 32, "optimizer": "adamw", "width": 32}, None),
        ({"lr": 0.1, "batch": 128, "optimizer": "adamw"}, None),  # the constraint
    ],
    ids=[
        "dropped",
        "filled",
        "inactive",
        "kind",
        "stranger",
        "range",
        "choice",
        "constant",
        "constraint",
    ],
)
def test_another_spaces_configuration_is_said_in_this_one_or_left_out(params, here):
    translated = translate_params(HERE, params)
    # 2.0 is not 2.
    assert repr(translated) == repr(here if here is None else HERE.build(here.__getitem__))
    if translated is not None:
        HERE.validate(translated)


@pytest.mark.parametrize(
    ("params", "width"),
    [
        ({"layers": 2, "width": 64}, 64),
        ({"layers": 8}, 256),
        ({"width": 512.0}, 512),
        ({"layers": 2, "width": 512}, None),
        ({"layers": 3, "width": 64}, None),
    ],
)
def test_values_that_are_tied_here_were_of_one_choice_there(params, width):
    sizes = [{"layers": layers, "width": width} for layers, width in ((2, 64), (8, 256), (8, 512))]
    translated = translate_params(Space.from_dict({"size": {"values": sizes}}), params)
    assert translated == next((size for size in sizes if size["width"] == width), None)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.none() | st.floats(-5, 5)), max_size=12),
    st.integers(0, 6),
    st.integers(0, 3),
)
def test_what_leads_is_distinct_best_first_and_each_is_tried_once(told, top, initial):
    """Neither a configuration that was tried often, nor an initial one, is tried again."""
    points = [{"x": value} for value in range(1, initial + 1)]
    spec = make_spec(
        parameters={"x": {"values": [1, 2, 3, 4, 5]}},
        warm_start={"from": "a", "top": top},
        initial=points,
        trials={"max": 5},
    )
    earlier = [
        Observation(f"a/{n}", {"x": x}, loss=loss, state="failed" if loss is None else "done")
        for n, (x, loss) in enumerate(told)
    ]
    first = leading(spec, earlier)
    best: dict[int, float] = {}
    for x, loss in told:
        if loss is not None:
            best[x] = min(loss, best.get(x, loss))
    assert [best[params["x"]] for params in first] == sorted(best.values())[:top]
    history: list[Observation] = []
    while (proposal := propose(spec, Random(), history, first)) is not None:
        history.append(Observation(str(len(history)), proposal.params, proposal.note))
    tried = [seen.params["x"] for seen in history]
    assert sorted(tried) == [1, 2, 3, 4, 5]
    warm = [params["x"] for params in first if params["x"] > initial]
    assert tried[initial : initial + len(warm)] == warm


def test_a_front_leads_by_several_metrics(sweeps):
    before = done(sweeps, "before", make_several(trials=MANY, tracking=NOWHERE))
    spec = make_several(trials=MANY, tracking=NOWHERE, warm_start={"from": "before", "top": 4})
    first = leading(spec, load_warm_start(sweeps.journal, spec))
    front = [before.state.trials[name].params for name in before.state.front]
    assert len(first) == 4
    assert all(params in front for params in first)


def test_modules_are_found_where_this_sweep_has_them_whomever_it_learns_from(
    sweeps, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in ("theirs", "ours"):
        (tmp_path / name).mkdir()
    api.create(sweeps, make(folder=str(tmp_path / "theirs")), "before")
    spec = make(folder=str(tmp_path / "ours"), warm_start={"from": "before"})
    assert load_warm_start(sweeps.journal, resolve(sweeps.journal, spec)) == ()
    assert sys.path.index(str(tmp_path / "ours")) < sys.path.index(str(tmp_path / "theirs"))
