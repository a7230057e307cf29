"""Checkpoints that are lent to other trials: there while they are needed, gone at the end."""

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check
from librarian import CURVE, POPULATION, Librarian, Rotten
from simulated_sweeps import CALLS, Lab, at_desk, make_several, make_spec

from hposvc.backends.simulate import Simulation
from hposvc.events import Checkpointed, Failed, Finished, Reported
from hposvc.state.checkpoints import prize
from trainables.storage.checkpoint import Saved


class Weighty(Simulation):
    """Checkpoints have sizes, and orders break off now and then."""

    def __post_init__(self):
        super().__post_init__()
        self._rng = Random(self.setting.spec.seed)

    def events(self, timeout_s):
        if self._runs and self._rng.random() < 0.05:
            run = self._runs.pop(self._rng.choice(list(self._runs)))
            return [Failed(self.now(), run.order.id, run.order.trial, "infra", "lost")]
        return [self._weighed(event) for event in super().events(timeout_s)]

    def _weighed(self, event):
        if not isinstance(event, Checkpointed):
            return event
        return replace(event, saved=replace(event.saved, size=self._rng.randint(1, 10)))


def counts(state, event):
    """Whether it is a report that stands: then the shelf is put in order."""
    return isinstance(event, Reported) and state.trials[event.trial].curve[-1:] == [
        (event.step, event.metrics["loss"])
    ]


def check_quota(state):
    """All is within the quota, or what is left is needed."""
    checkpoints, trials = state.checkpoints, state.trials.values()
    kept = {saved.path: saved for trial in trials for saved in trial.checkpoints}
    assert checkpoints.size == sum(saved.size for saved in kept.values())
    needed = {saved.path for _, saved in checkpoints.lent.values()}
    for trial in trials:
        if not trial.over:
            start = None if trial.order is None else trial.order.start
            needed |= {
                one.path for one in (start, trial.resume_point[0], trial.boundary_point[0]) if one
            }
            needed |= {one.path for one in trial.checkpoints if one.step not in trial.steps}
    for name in state.front:
        best = prize(state.trials[name])
        needed |= set() if best is None else {best.path}
    assert checkpoints.size <= checkpoints.quota or kept.keys() <= needed


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    quota=st.integers(1, 80),
    scheduler=st.sampled_from(
        [{"type": "fifo"}, {"type": "asha"}, {"type": "asha", "mode": "promote"}, POPULATION]
    ),
    keep=st.tuples(st.integers(1, 2), st.integers(0, 2)),
    curve=st.sampled_from(["troubled", "tradeoff"]),
)
def test_a_quota_takes_what_nobody_needs_and_nothing_else(
    tmp_path_factory, seed, quota, scheduler, keep, curve
):
    """Taken from a trial that goes on, the quota would cost its steps; from the best, the model."""
    if curve == "tradeoff" and scheduler is POPULATION:
        return  # it ranks by one metric
    CALLS.clear()
    folder = tmp_path_factory.mktemp("sweep")
    lab = Lab.at(folder)
    make = make_several if curve == "tradeoff" else make_spec
    sections = {} if curve == "tradeoff" else {"engine": CURVE}
    spec = make(
        seed=seed,
        scheduler=scheduler,
        checkpoints={"keep_last": keep[0], "keep_best": keep[1], "quota": quota},
        failure={"user_retries": 1, "infra_retries": 9},
        **sections,
    )
    lab.run(spec, backend=Weighty)
    librarian = Librarian(spec)
    for event in lab.events():
        librarian.read(event)
        if isinstance(event, Finished) or counts(librarian.state, event):
            check_quota(librarian.state)
    librarian.close()
    check(spec, lab.events())
    lab.journal.store.close()


def test_a_finalist_s_best_stays_until_it_is_told_which_of_them_wins():
    """Its second training may make it the best, and then its first is what people get."""
    desk = at_desk(
        trials={"max": 4, "parallel": 4},
        checkpoints={"quota": 10},
        fidelity={"max": 1},
        finalists={"top": 2, "seeds": 2},
    )
    orders = [desk.start(lr) for lr in (0.1, 0.2, 0.3, 0.4)]
    for order, loss in zip(orders, (0.3, 0.1, 0.4, 0.2), strict=True):
        saved = Saved(1, f"{order.trial}/{order.id}-1", "", 10)
        desk.happen(Checkpointed(desk.time, order.id, order.trial, saved))
        desk.report(order, 1, loss, save=False)
        desk.end(order)
    kept = [one.id for one in desk.state.trials.values() if one.checkpoints]
    assert kept == ["t0002", "t0004"]


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    members=st.integers(2, 12),
    slots=st.integers(1, 64),
    last=st.integers(3, 12),
    interval=st.integers(1, 2),
    keep=st.tuples(st.integers(1, 2), st.integers(0, 1)),
    every=st.integers(1, 3),
    backend=st.sampled_from([Simulation, Rotten]),
)
def test_what_is_lent_is_never_dropped_while_needed_and_all_is_let_go_at_the_end(
    tmp_path_factory, seed, members, slots, last, interval, keep, every, backend
):
    CALLS.clear()
    folder = tmp_path_factory.mktemp("sweep")
    lab = Lab.at(folder)
    spec = make_spec(
        seed=seed,
        fidelity={"max": last},
        scheduler={**POPULATION, "interval": interval},
        trials={"max": members, "parallel": slots},
        checkpoints={"every": every, "keep_last": keep[0], "keep_best": keep[1]},
        failure={"user_retries": 1, "infra_retries": 3},
        engine={"type": "simulate", "curve": "simulated_sweeps:troubled"},
    )
    lab.run(spec, backend=backend)
    librarian = Librarian(spec)
    for event in lab.events():
        librarian.read(event)
    librarian.close()
    check(spec, lab.events())
    lab.journal.store.close()


def weighed(desk, order, step, size, loss=0.5):
    """A report with a checkpoint of so many bytes."""
    saved = Saved(step, f"{order.trial}/{order.id}-{step}", "", size)
    desk.happen(Checkpointed(desk.time, order.id, order.trial, saved))
    desk.report(order, step, loss, save=False)
    return saved


def test_what_replicates_of_finalists_keep_counts_for_the_quota_and_for_the_room():
    desk = at_desk(
        trials={"max": 2, "parallel": 2},
        finalists={"top": 1, "seeds": 2},
        checkpoints={"quota": 25},
        fidelity={"max": 3},
    )
    checkpoints = desk.state.checkpoints
    orders = [desk.start(0.1), desk.start(0.2)]
    for order, loss in zip(orders, (0.1, 0.2), strict=True):
        weighed(desk, order, 3, 10, loss)
        desk.end(order)
    assert (checkpoints.size, checkpoints.largest, checkpoints.over) == (20, 10, False)
    replicate = desk.start()
    weighed(desk, replicate, 1, 14)
    assert (checkpoints.size, checkpoints.largest) == (24, 14), (
        "the other trial's checkpoint made room"
    )
    assert [one.id for one in desk.state.trials.values() if one.checkpoints] == ["t0001"]
    weighed(desk, replicate, 2, 16)
    assert (checkpoints.size, checkpoints.largest, checkpoints.over) == (26, 16, True)
    desk.end(replicate)
    desk.happen(Finished(0.0, "STOPPED", "user"))
