"""Warm start: which trials a sweep learns from, how they are translated, and resumes."""

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
from hposvc.driver.proposals import propose
from hposvc.driver.warm_start import leading, load_warm_start, resolve
from hposvc.errors import Interrupted, NotFound, SpecError
from hposvc.events import WarmStarted
from hposvc.journal.database import SWEEPS
from hposvc.verbs.place import fork_data
from searchers.random_search import Random
from searchers.searcher import TRIED, Observation
from searchers.space import Space
from searchers.translation import translate_params

sys.path.insert(0, str(Path(__file__).parent))  # specs name functions of this file

MANY = {"max": 60, "parallel": 8}
NOWHERE = {"send_to": []}  # what a sweep learns from is in the journal
LR = {"min": 1e-5, "max": 1e-1, "log": True}


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

    def on_events(self, state, events):
        if len(state.trials) > 20 and not self.pressed:
            self.pressed = True
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("search", ["sobol", "grid", "auto", "cmaes"])
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
    record = api.drive(sweeps, sweeps.find("after"))
    assert (record.state.state, record.state.earlier) == ("COMPLETED", earlier)
    assert sum(isinstance(event, WarmStarted) for _, event in journal.read("after")) == 1


def test_a_sweep_that_is_not_there_is_told_before_anything_is_recorded(sweeps):
    with pytest.raises(NotFound, match="nobody: no such sweep"):
        api.create(sweeps, make(warm_start={"from": "nobody"}), "after")
    assert sweeps.journal.sweeps() == []


def test_other_metrics_are_refused_by_name(sweeps):
    done(sweeps, "before", make())
    spec = make_several(trials=MANY, tracking=NOWHERE, warm_start={"from": "before"})
    message = r"warm_start\.from: is before, which has no results of speed, .* it optimised loss"
    with pytest.raises(SpecError, match=message):
        api.create(sweeps, spec)


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
            {"lr": 1e-2, "batch": 32.0, "optimizer": "adamw"},
            {"lr": 0.01, "batch": 32, "optimizer": "adamw", "width": 64},
        ),
        ({"depth": 3, "width": 64}, None),
        ({"lr": 1.0, "batch": 32, "optimizer": "adamw"}, None),
        ({"lr": 0.01, "batch": 32, "optimizer": "adamw", "width": 32}, None),
        ({"lr": 0.1, "batch": 128, "optimizer": "adamw"}, None),  # the constraint
    ],
    ids=["dropped", "filled", "kind", "stranger", "range", "constant", "constraint"],
)
def test_another_spaces_configuration_is_said_in_this_one_or_left_out(params, here):
    translated = translate_params(HERE, params)
    # 2.0 is not 2.
    assert repr(translated) == repr(here if here is None else HERE.build(here.__getitem__))
    if translated is not None:
        HERE.validate(translated)


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
