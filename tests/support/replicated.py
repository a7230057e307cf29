"""Replicates for tests: curves with noise from seeds only, and invariants of the journal."""

from collections import Counter
from random import Random

from invariants import check
from simulated_sweeps import Flaky, fold

from hposvc.backends.simulate import Simulation
from hposvc.controller.replication import seed_name
from hposvc.events import Ordered, Reported

FINALISTS = {"top": 3, "seeds": 4}


LAST = 9  # step of every trial here


class Seeded(Simulation):
    """A simulation whose values have noise that depends only on an order's seed."""

    def _call(self, order, step):
        (metrics, left_out), seconds = super()._call(order, step)
        seed = order.seed_of or order.trial
        noisy = {"loss": metrics["loss"] + Random(f"{seed} {step}").gauss(0, 0.1)}
        return (noisy, left_out), seconds


class Lossy(Flaky, Seeded):
    """A simulation with seeded noise, on a cluster that loses ranks."""


def of_replicates(events):
    """Return the ids of the orders that train a replicate."""
    return {e.order.id for e in events if isinstance(e, Ordered) and e.order.replicate}


def check_replicates(spec, events):
    """Check the invariants of the search and the replicates, and return the final state."""
    of_replicated = of_replicates(events)
    search = [
        event
        for event in events
        if (event.order.id if isinstance(event, Ordered) else getattr(event, "order", 0))
        not in of_replicated
    ]
    check(spec, search)
    state = fold(spec, events)
    assert not state.replicates.trials.orders
    assert list(state.trials.values()) == list(fold(spec, search).trials.values())
    attempts = Counter()
    for order in (e.order for e in events if isinstance(e, Ordered) and e.order.replicate):
        trial = state.trials[order.trial]
        assert (order.params, order.seed_of) == (
            trial.reported_params,
            seed_name(trial, order.replicate),
        )
        assert order.until == spec.last_step
        assert order.first == (1 if order.start is None else order.start.step + 1)
        attempts[order.trial, order.replicate] += 1
    for replicates in state.replicates.finalists.values():
        for replicate in replicates:
            assert [step for step, _ in replicate.curve] == list(range(1, replicate.step + 1))
            assert replicate.checkpoints == [] or replicate.ended_from is not None
    return state


def results(state):
    return {name: state.replicates.values(name) for name in state.replicates.finalists}


def half_way(lab, spec):
    """Run a sweep, and start sweep `s` with its events up to the middle of its replicates."""
    lab.run(spec, "whole", Seeded)
    events = lab.events("whole")
    positions = [
        n
        for n, e in enumerate(events)
        if isinstance(e, Reported) and e.order in of_replicates(events)
    ]
    half = events[: positions[len(positions) // 2]]
    lab.journal.append("s", 0, half)
    return half
