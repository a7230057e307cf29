"""Seeds inside the search: if these fail, luck decides, or a seed is lost or counted twice."""

import math
from collections import defaultdict
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_sweeps import SCHEDULERS, Flaky, Lab, fold, make_controller, make_spec

from hposvc.backends.simulate import Simulation
from hposvc.driver.driver import rebuild
from hposvc.errors import SpecError
from hposvc.events import BECAUSE, NO_NOISE, Ordered, Reported, Requested
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.schedulers import scheduler as facts
from hposvc.spec.extension import accepted
from hposvc.state.evidence import PROOF, evidence
from hposvc.state.trial import END, OVER

KEEPING = [name for name in SCHEDULERS if name != "pbt"]


@pytest.fixture(autouse=True)
def _look_at_every_turn(monkeypatch):
    monkeypatch.setattr("hposvc.driver.loop.POLL_S", 0.0)


def simulated(curve):
    return {"type": "simulate", "curve": f"simulated_sweeps:{curve}"}


def make_seeded(name, seeds, curve="noisy", **sections):
    sections = {"trials": {"max": 12, "parallel": 3, "seeds": seeds}, **sections}
    if name == "several":
        metrics = [{"name": "loss", "goal": "minimize"}, {"name": "speed", "goal": "maximize"}]
        return make_spec(
            metric=None, metrics=metrics, **{**sections, "engine": simulated("noisy_tradeoff")}
        )
    return make_spec(scheduler=SCHEDULERS[name], **{"engine": simulated(curve), **sections})


def counted(state):
    """Return what decides: the best trials, their order and values, and what searchers see."""
    order = [(trial.id, trial.values, trial.place) for trial in state.ranked()]
    return state.front, order, list(state.history())


def check(spec, events):
    """Check what holds for every sweep with seeds, and return its final state."""
    state, seeds = fold(spec, events), spec.trials.seeds
    assert state.finished
    assert not state.held
    own = state.replicates.own_seeds
    number = {}
    for order in (event.order for event in events if isinstance(event, Ordered)):
        if order.replicate <= own:
            assert order.seed_of == f"seed{order.replicate + 1}"
            number[order.id] = order.trial, order.replicate
    curves = defaultdict(dict)
    for event in events:
        if isinstance(event, Reported) and event.order in number:
            curves[number[event.order]].setdefault(event.step, event.metrics)
    for trial in state.trials.values():
        assert trial.state in OVER
        assert [seed.number for seed in trial.seeds] == [*range(1, len(trial.seeds) + 1)]
        assert len(trial.seeds) < seeds.max
        for run in (trial, *trial.seeds):
            seed = 0 if run is trial else run.number
            reported = curves[trial.id, seed]
            assert {step for step, _ in run.curve} == {*reported}
            assert run.params == trial.params
        if trial.at_end and not trial.fails:
            ended = [run for run in trial.seeds if run.state == "COMPLETED"]
            for metric, value in zip(spec.objectives, trial.values, strict=True):
                last = [run.curves[metric.name][-1][1] for run in (trial, *ended)]
                assert value == pytest.approx(fmean(last))
                assert min(last) <= value <= max(last)
    return state


@pytest.mark.parametrize("name", [*KEEPING, "several"])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_a_trial_is_the_mean_of_its_seeds_whatever_happens(name, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    store = Store(f"sqlite:///{folder / 'x.db'}")
    lab = Lab(Journal(store), folder)
    low = data.draw(st.integers(1, 3))
    rule = data.draw(st.sampled_from(["worst", "leave_out"]))
    seeds = {"min": low, "max": data.draw(st.integers(max(low, 2), 4)), "on_failure": rule}
    curve = data.draw(st.sampled_from(["noisy", "hapless", "smooth"]))
    spec = make_seeded(name, seeds, curve, seed=data.draw(st.integers(0, 99)))
    state = lab.run(spec, "s", data.draw(st.sampled_from([Simulation, Flaky])))
    assert counted(state) == counted(check(spec, lab.events()))
    assert repr(fold(spec, lab.events())) == repr(rebuild(lab.journal, "s", spec)[0].state)
    for trial in state.trials.values():
        failed = [seed for seed in trial.seeds if seed.state == "FAILED" or seed.diverged]
        if failed and rule == "worst":
            assert trial.loss == math.inf
        if trial.at_end and not trial.fails and not state.noiseless:
            assert len(trial.seeds) + 1 >= low
    assert state.front or all(trial.loss == math.inf for trial in state.trials.values())
    for best in (state.trials[name] for name in state.front):
        exact = any(seed.reason == NO_NOISE for seed in best.seeds)
        if best.at_end and not state.noiseless and not exact:
            assert len(best.seeds) + 1 == spec.trials.seeds.max
    store.close()


@pytest.mark.parametrize("name", KEEPING)
def test_schedulers_hear_of_a_step_when_all_first_seeds_came_there_and_hear_the_mean(name, lab):
    heard = []

    class Listening:
        def __init__(self, scheduler):
            self.scheduler = scheduler

        def __getattr__(self, attribute):
            return getattr(self.scheduler, attribute)

        def apply(self, fact):
            heard.append((fact, controller.state))
            self.scheduler.apply(fact)

    spec = make_seeded(name, {"min": 3, "max": 3})
    controller = make_controller(spec)
    controller.scheduler = Listening(controller.scheduler)
    state = lab.run(spec, controller=controller)
    reports = [fact for fact, _ in heard if isinstance(fact, facts.Report)]
    assert len(reports) > 12
    for report in reports:
        trial = state.trials[report.trial]
        losses = [run.steps[report.step] for run in (trial, *trial.seeds)]
        assert len(losses) == 3
        assert report.loss == pytest.approx(fmean(losses))
    per_trial = defaultdict(list)
    for fact, _ in heard:
        if isinstance(fact, facts.Report | facts.Paused | facts.Left):
            per_trial[fact.trial].append(type(fact).__name__)
    assert all(kinds.count("Left") <= 1 and kinds[0] == "Report" for kinds in per_trial.values())


@pytest.mark.parametrize("name", [*KEEPING, "several"])
@pytest.mark.parametrize("seeds", [{"min": 1, "max": 4}, {"min": 2, "max": 3}])
def test_a_crash_after_any_event_loses_no_seed_and_counts_none_twice(name, seeds, lab):
    short = {"fidelity": {"max": 4}, "trials": {"max": 5, "parallel": 2, "seeds": seeds}}
    spec = make_seeded(name, seeds, **short)
    lab.run(spec, "whole")
    whole = lab.events("whole")
    for length in range(2, len(whole), 7):
        sweep = f"after-{length}"
        lab.journal.append(sweep, 0, whole[:length])
        state = lab.run(spec, sweep)
        assert counted(state) == counted(check(spec, lab.events(sweep)))
        if not spec.several:
            best = state.trials[state.best]
            assert len(best.seeds) + 1 == spec.trials.seeds.max


@pytest.mark.parametrize("least", [1, 3])
def test_a_metric_without_noise_costs_next_to_nothing_more(least, lab):
    once = {"fidelity": {"max": 100}, "trials": {"max": 40}}
    seeded = {**once, "trials": {"max": 40, "seeds": {"min": least, "max": 5}}}
    alone = lab.run(make_spec(**once), "alone")
    state = lab.run(make_spec(**seeded), "seeded")
    steps = [sum(isinstance(e, Reported) for e in lab.events(name)) for name in ("alone", "seeded")]
    assert steps[1] <= 1.03 * steps[0]
    assert state.best == alone.best
    assert state.noiseless
    reasons = [seed.reason for trial in state.trials.values() for seed in trial.seeds]
    assert {*reasons} == {NO_NOISE}


def test_seeds_go_to_the_trials_that_may_be_the_best(lab):
    spec = make_seeded("fifo", {"min": 1, "max": 5}, trials={"max": 60, "seeds": {"max": 5}})
    state = lab.run(spec)
    ranked = [trial for trial in state.ranked() if trial.loss < math.inf]
    seeds = [len(trial.seeds) for trial in ranked]
    assert fmean(seeds[:15]) > 2 * fmean(seeds[15:])
    assert sum(seeds) < 150  # of 240 possible ones


@pytest.mark.parametrize("seed", range(5))
def test_a_lucky_seed_is_no_best_trial(seed, lab):
    spec = make_seeded("fifo", {"max": 5}, trials={"max": 40, "seeds": {"max": 5}}, seed=seed)
    state = lab.run(spec)
    best = state.trials[state.best]
    luckiest = min(run.own_values[0] for one in state.trials.values() for run in one.runs)
    assert best.value > luckiest
    for other in state.trials.values():
        common = min(len(other.runs), len(best.runs))
        if other is not best and other.at_end:
            gain = best.loss_at(END + common) - other.loss_at(END + common)
            noise = state.trials.noise
            assert evidence(gain, common, noise) < PROOF


def test_a_target_is_met_by_a_trial_with_all_its_seeds(lab):
    metric = {"name": "loss", "goal": "minimize", "target": 0.25}
    spec = make_seeded("fifo", {"max": 4}, metric=metric, trials={"max": 60, "seeds": {"max": 4}})
    state = lab.run(spec)
    assert (state.state, state.reason) == ("COMPLETED", "target")
    best = state.trials[state.best]
    assert len(best.runs) == 4
    assert best.value <= 0.25


def test_a_budget_leaves_enough_for_the_seeds_of_the_best(lab):
    trials = {"parallel": 2, "seeds": {"max": 4}}
    spec = make_seeded("fifo", {"max": 4}, trials=trials, budget={"wall": "150s"})
    state = lab.run(spec)
    assert state.reason == "budget"
    assert len(state.trials[state.best].runs) == 4


def test_trials_of_several_seeds_do_not_become_longer():
    spec = make_seeded("fifo", {"max": 3})
    with pytest.raises(SpecError, match=r"fidelity\.max: can't grow with trials\.seeds"):
        accepted(spec, {"fidelity.max": 27}, 12)
    assert accepted(spec, {"trials.max": 14}, 12) == {"trials.max": 14}


def test_a_rung_without_the_metric_holds_nobody(lab):
    for name in KEEPING:
        spec = make_seeded(name, {"min": 2, "max": 3}, "sparse")
        state = lab.run(spec, name)
        assert state.finished
        assert {trial.state for trial in state.tried.values()} <= OVER


def test_an_extension_forgives_no_failed_seed(lab):
    seeds = {"min": 2, "max": 3}
    spec = make_seeded("fifo", seeds, "hapless", trials={"max": 20, "seeds": seeds})
    before = lab.run(spec)
    failed = {one.id for one in before.trials.values() if one.fails}
    assert any(one.failed_seeds for one in before.trials.values())
    [*_, last] = lab.events()
    more = Requested(last.time, "extend", None, {"trials.max": 22})
    lab.journal.append("s", len(lab.events()), [more])
    state = fold(spec, lab.events())
    assert {one.id for one in state.trials.values() if one.fails} == failed
    assert state.best == before.best


def test_a_configuration_without_randomness_stops_no_race_of_others(lab):
    kinds = {"kind": {"values": ["exact", "noisy"]}}
    lr = {"lr": {"min": 1e-5, "max": 1e-1, "log": True}}
    seeds = {"max": 4}
    spec = make_seeded(
        "fifo", seeds, "mixed", parameters={**lr, **kinds}, trials={"max": 30, "seeds": seeds}
    )
    state = lab.run(spec)
    assert not state.noiseless
    best = state.trials[state.best]
    assert len(best.runs) == (4 if best.params["kind"] == "noisy" else 1)
    exact = [one for one in state.trials.values() if one.exact]
    assert exact
    assert {one.params["kind"] for one in exact} == {"exact"}
    assert all(one.place == END + 4 for one in exact)  # as if it had all seeds


@pytest.mark.parametrize("verbs", [["stop"], ["exclude", "include"]])
def test_a_seed_that_a_user_ends_ends_no_race_of_others(verbs, lab):
    class Ends:
        done = False

        def on_events(self, state, events):
            seeds = [one.shown_as for one in state.replicates.trials.running()]
            if seeds and not self.done:
                self.done = True
                for verb in verbs:
                    because = {BECAUSE: "wrong"} if verb == "exclude" else {}
                    lab.journal.request("s", verb, seeds[0], because)

    spec = make_seeded("fifo", {"max": 4}, trials={"max": 12, "seeds": {"max": 4}})
    state = lab.run(spec, watchers=[Ends()])
    assert sum(len(one.runs) > 2 for one in state.trials.values()) > 1


def test_a_failed_seed_that_is_tried_again_counts(lab):
    seeds = {"min": 2, "max": 3}
    spec = make_seeded("fifo", seeds, "hapless", trials={"max": 20, "seeds": seeds})
    state = lab.run(spec)
    failed = [t.id for t in state.trials.values() if any(s.state == "FAILED" for s in t.seeds)]
    assert failed
    orders = state.next_order
    [*_, last] = lab.events()
    lab.journal.append("s", len(lab.events()), [Requested(last.time, "retry", failed[0], {})])
    again = lab.run(spec)
    assert again.finished
    assert again.next_order > orders
    assert again.trials[failed[0]].fails  # it failed again
    assert counted(again) == counted(fold(spec, lab.events()))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"trials": {"seeds": {"min": 6, "max": 5}}}, "trials.seeds.min: is 6, and max is 5; swap"),
        ({"trials": {"seeds": 1}}, "trials.seeds.max: is 1; give 2 or more"),
        ({"trials": {"seeds": "many"}}, "trials.seeds: is 'many'; give {min: 1, max: 5}"),
        ({"trials": {"seeds": {"most": 5}}}, "trials.seeds.most: no such key"),
        ({"scheduler": SCHEDULERS["pbt"]}, "trials.seeds: are of one configuration, and scheduler"),
        (
            {"search": {"method": "gp", "repeats": True}},
            "search.repeats: is true, and trials.seeds trains configurations again already",
        ),
        (
            {"scheduler": {"type": "fifo", "plateau": {"patience": 2}}},
            "scheduler.plateau: ends seeds of a trial at unlike steps",
        ),
    ],
)
def test_what_means_nothing_is_refused(sections, message):
    trials = {"max": 12, **{"seeds": 3}, **sections.get("trials", {})}
    with pytest.raises(SpecError) as refused:
        make_spec(**{**sections, "trials": trials})
    assert message in str(refused.value)


def test_a_number_of_seeds_is_that_many_of_each_trial():
    seeds = make_spec(trials={"max": 2, "seeds": 3}).trials.seeds
    assert (seeds.min, seeds.max, seeds.on_failure) == (3, 3, "worst")
