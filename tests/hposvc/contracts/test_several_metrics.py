"""Schedulers judging by several metrics: they stop only trials that another trial dominates."""

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check
from simulated_sweeps import Flaky, Lab, make_controller, make_several

from hposvc.backends.simulate import Simulation
from hposvc.schedulers.asha import Asha
from hposvc.schedulers.median import Median
from hposvc.schedulers.scheduler import Advance, Closed, Left, Ordered, Paused, Plan, Report
from searchers.pareto import dominates


@dataclass
class Witness:
    """A watched scheduler: each trial that it stops must be dominated at its rung."""

    real: object
    rungs: dict[int, dict[str, tuple[float, ...]]] = field(default_factory=dict)
    stops: int = 0

    def __getattr__(self, name):
        return getattr(self.real, name)

    def apply(self, fact):
        if isinstance(fact, Report):
            self.rungs.setdefault(fact.step, {})[fact.trial] = fact.vector
        self.real.apply(fact)
        for bracket in getattr(self.real, "live", {}).values():
            for trial in bracket.stops:
                self.check(trial, bracket.rungs[bracket.rung_of[trial]].losses)

    def judge(self, report):
        decision = self.real.judge(report)
        if decision.verdict == "stop":
            self.check(report.trial, self.rungs[report.step])
        return decision

    def check(self, trial, rung):
        self.stops += 1
        mine = rung[trial]
        assert math.isinf(mine[0]) or any(dominates(other, mine) for other in rung.values())


def run(folder, backend=Simulation, **sections):
    """Run a sweep, and return its final state and the scheduler's witness."""
    spec = make_several(**sections)
    controller = make_controller(spec)
    controller.scheduler = witness = Witness(controller.scheduler)
    lab = Lab.at(folder)
    state = lab.run(spec, backend=backend, controller=controller)
    check(spec, lab.events())
    lab.journal.store.close()
    return state, witness


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1000),
    scheduler=st.sampled_from(
        [
            {"type": "asha", "eta": 2},
            {"type": "asha", "eta": 4, "mode": "promote"},
            {"type": "hyperband", "eta": 3},
        ]
    ),
    last=st.integers(3, 16),  # of fewer steps hyperband stops none
    slots=st.integers(1, 12),
    most=st.integers(1, 30),
    backend=st.sampled_from([Simulation, Flaky]),
)
def test_no_trial_is_stopped_that_no_other_of_its_rung_dominates(
    tmp_path_factory, seed, scheduler, last, slots, most, backend
):
    state, witness = run(
        tmp_path_factory.mktemp("sweep"),
        backend,
        seed=seed,
        fidelity={"max": last},
        scheduler=scheduler,
        trials={"max": most, "parallel": slots},
    )
    for trial in state.trials.values():  # that were never promoted
        if trial.state == "STOPPED" and trial.reason == "rung":
            witness.check(trial.id, witness.rungs[trial.step])


@pytest.mark.parametrize(
    "scheduler",
    [
        {"type": "asha"},
        {"type": "asha", "mode": "promote"},
        {"type": "hyperband"},
        {"type": "bohb"},
        {"type": "median"},
        {"type": "fifo"},
    ],
    ids=lambda scheduler: "-".join(scheduler.values()),
)
def test_every_scheduler_of_several_metrics_saves_steps_and_ends(scheduler, tmp_path):
    """A scheduler that spares every trial would save nothing."""
    state, _ = run(tmp_path, scheduler=scheduler, trials={"max": 60, "parallel": 4}, search="auto")
    assert state.state == "COMPLETED"
    assert len(state.front) > 1
    full = 9 * 60
    spent = sum(trial.step for trial in state.trials.values())
    assert spent > 0.9 * full if scheduler["type"] == "fifo" else spent < 0.85 * full


def arrive(scheduler, **losses):
    for name, vector in losses.items():
        scheduler.apply(Ordered(name, 1))
        scheduler.apply(Report(name, 1, vector[0], vector))
        scheduler.apply(Paused(name))


def test_a_share_of_fronts_is_promoted_front_by_front():
    scheduler = Asha(eta=3, mode="promote").scheduler(Plan(1, 9, metrics=2))
    arrive(scheduler, a=(1.0, 9.0), b=(9.0, 1.0), c=(2.0, 10.0), d=(10.0, 2.0), e=(11.0, 11.0))
    arrive(scheduler, f=(12.0, 12.0))
    promoted = [scheduler.next().trial]
    scheduler.apply(Ordered(promoted[0], 3))
    promoted.append(scheduler.next().trial)
    assert set(promoted) == {"a", "b"}  # two of six


def test_what_none_dominates_is_promoted_when_no_more_trials_come():
    """A paused trial of the front must not end where it stands."""
    scheduler = Asha(eta=4, mode="promote").scheduler(Plan(1, 4, metrics=2))
    arrive(scheduler, a=(1.0, 3.0), b=(2.0, 2.0), c=(3.0, 1.0), worse=(4.0, 4.0))
    going = [scheduler.next().trial]  # the share: one of four
    scheduler.apply(Ordered(going[0], 4))
    assert not isinstance(scheduler.next(), Advance)
    scheduler.apply(Closed())
    while isinstance(move := scheduler.next(), Advance):
        going.append(move.trial)
        scheduler.apply(Ordered(move.trial, 4))
    assert sorted(going) == ["a", "b", "c"]


def finish(scheduler, name, *losses):
    for step, vector in enumerate(losses, 1):
        scheduler.apply(Report(name, step, vector[0], vector))
    scheduler.apply(Left(name))


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ((5.0, 5.0), "stop"),
        ((5.0, 0.5), "continue"),  # better than all others in one metric
        ((2.5, 2.5), "continue"),  # two of four dominate it, which is not more than half
        ((math.inf, math.inf), "stop"),
    ],
)
def test_the_median_rule_stops_what_more_than_half_dominate(losses, verdict):
    scheduler = Median(min_trials=4).scheduler(Plan(1, 4, metrics=2))
    for number in range(1, 5):
        finish(scheduler, f"t{number}", (float(number), float(number)))
    report = Report("new", 1, losses[0], losses)
    scheduler.apply(report)
    assert scheduler.judge(report).verdict == verdict


def test_a_rung_counts_a_trial_that_diverged_in_one_metric_alone(tmp_path):
    """NaN in any metric must not stand on the front, nor stop others."""
    lab = Lab.at(tmp_path)
    spec = make_several(
        scheduler="asha",
        parameters={"lr": {"values": [9e-9 * k for k in range(1, 9)]}},
        trials={"max": 8, "parallel": 2},
    )
    state = lab.run(spec)
    diverged = [trial for trial in state.trials.values() if trial.step == 3]
    assert {(trial.reason, trial.losses) for trial in diverged} == {("diverged", (math.inf,) * 2)}
    assert state.front
    assert not {trial.id for trial in diverged} & {*state.front}
