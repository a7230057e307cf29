"""Checkpoints that no report brings: late ones, and ones within a step.

If these fail, a trial that lost its slot trains hours again, or goes on from weights of others.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check
from librarian import Librarian, Rotten
from simulated_sweeps import CALLS, Lab, at_desk, fold, make_spec

from hposvc.events import Checkpointed, Ordered
from trainables.storage.checkpoint import Saved


def dropped(desk):
    return {saved.path for saved in desk.state.checkpoints.dropped}


def test_a_trial_that_lost_its_slot_goes_on_within_the_step():
    desk = at_desk(checkpoints={"every": "500 steps"})
    order = desk.start()
    desk.keep(order, 0, 500)
    newest = desk.keep(order, 0, 1000)
    desk.fail(order, "infra")
    again = desk.start()
    assert (again.start, again.first, again.parent) == (newest, 1, None)
    assert "t0001/1-0.500" in dropped(desk)
    desk.report(again, 1, 0.5, save=False)
    last = desk.keep(again, 1, 500)
    desk.fail(again, "stalled")
    assert desk.start().start == last


def test_a_later_whole_step_supersedes_what_lies_within_one():
    desk = at_desk()
    order = desk.start()
    desk.report(order, 1, 0.5)
    inner = desk.keep(order, 1, 7)
    desk.report(order, 2, 0.4)
    assert inner.path in dropped(desk)
    desk.fail(order, "infra")
    assert desk.start().start.path == "t0001/1-2"


def test_a_checkpoint_that_was_long_in_writing_is_of_its_own_step():
    desk = at_desk(checkpoints={"keep_last": 1, "keep_best": 0})
    order = desk.start()
    desk.report(order, 1, 0.5, save=False)
    desk.report(order, 2, 0.4)
    late = desk.keep(order, 1)
    assert late.path in dropped(desk)
    desk.fail(order, "infra")
    assert desk.start().first == 3


def test_one_within_a_step_is_the_newest_of_the_last_and_never_the_best():
    desk = at_desk(checkpoints={"keep_last": 3, "keep_best": 1})
    order = desk.start()
    for step, loss in enumerate((0.1, 0.5, 0.4, 0.3), 1):
        desk.report(order, step, loss)
    inner = desk.keep(order, 4, 7)
    trial = desk.state.trials["t0001"]
    assert [saved.step for saved in trial.usable()] == [1, 3, 4]  # the best, and the last
    assert trial.checkpoints[-1] == inner
    assert desk.keep(order, 4, 8) in trial.checkpoints
    assert inner.path in dropped(desk)


def test_the_last_whole_step_stays_beside_one_within_the_next():
    desk = at_desk(checkpoints={"keep_last": 1, "keep_best": 0})
    order = desk.start()
    desk.report(order, 1, 0.5)
    desk.keep(order, 1, 7)
    desk.fail(order, "infra")
    again = desk.start()
    desk.fail(again, "infra", damaged=True)
    assert desk.start().start.path == "t0001/1-1"


def test_the_one_that_an_order_started_from_stays_while_a_rank_may_read_it():
    desk = at_desk()
    order = desk.start()
    first = desk.keep(order, 0, 5)
    desk.fail(order, "infra")
    again = desk.start()
    assert again.start == first
    desk.keep(again, 0, 9)
    assert first.path not in dropped(desk)
    for step in range(1, 10):
        desk.report(again, step, 0.5)
    desk.end(again)
    assert {"t0001/1-0.5", "t0001/2-0.9"} <= dropped(desk)


def test_a_trial_that_is_over_has_none_within_a_step():
    desk = at_desk(failure={"infra_retries": 0})
    order = desk.start()
    desk.report(order, 1, 0.5)
    inner = desk.keep(order, 1, 7)
    desk.fail(order, "stalled")
    trial = desk.state.trials["t0001"]
    assert (trial.state, trial.reason) == ("FAILED", "stalled")
    assert inner.path in dropped(desk)


def test_one_of_an_order_that_is_over_counts_for_nothing():
    desk = at_desk()
    order = desk.start()
    desk.fail(order, "infra")
    again = desk.start()
    zombie = desk.keep(order, 0, 500)
    assert zombie.path in dropped(desk)
    desk.fail(again, "infra")
    assert desk.start().start is None


class Saving(Rotten):
    """Now and then a checkpoint within a step, or one that is late."""

    count = 0

    def events(self, timeout_s):
        busy = [run for run in self._runs.values() if not run.waits and run.verdict == "continue"]
        if not busy or self._rng.random() < 0.6:
            return super().events(timeout_s)
        run, self.count = self._rng.choice(busy), self.count + 1
        path = f"{run.order.trial}/{run.order.id}-{run.step}.{self.count}"
        saved = Saved(run.step, path, "", 0, within=self.count)
        return [Checkpointed(self.now(), run.order.id, run.order.trial, saved)]


class Auditor(Librarian):
    """Also follows where orders go on within a step."""

    def __init__(self, spec):
        super().__init__(spec)
        self.makers = {}  # order by path

    def read(self, event):
        if isinstance(event, Checkpointed):
            trial = self.state.trials[event.trial]
            self.makers[event.saved.path] = trial.order
        super().read(event)

    def _lends(self, order):
        if not order.start.within:
            super()._lends(order)
            return
        maker, trial = self.makers[order.start.path], self.state.trials[order.trial]
        assert (maker.trial, maker.params) == (order.trial, order.params)
        assert order.parent is None
        assert all(saved.position < order.start.position for saved in trial.usable())
        assert order.start.path not in {saved.path for saved in self.state.checkpoints.dropped}

    def close(self):
        super().close()
        for trial in self.state.trials.values():
            assert not [saved for saved in trial.checkpoints if saved.within]


@pytest.mark.full
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    members=st.integers(2, 8),
    slots=st.integers(1, 8),
    last=st.integers(3, 9),
    keep=st.tuples(st.integers(1, 3), st.integers(0, 1)),
    scheduler=st.sampled_from(
        [
            {"type": "pbt", "interval": 2, "mutate": {"lr": {}}, "quantile": 0.4},
            {"type": "asha", "mode": "promote"},
            {"type": "fifo"},
        ]
    ),
)
def test_nobody_goes_on_within_a_step_of_another_s_or_of_other_values(
    tmp_path_factory, seed, members, slots, last, keep, scheduler
):
    CALLS.clear()
    folder = tmp_path_factory.mktemp("sweep")
    lab = Lab.at(folder)
    spec = make_spec(
        seed=seed,
        fidelity={"max": last},
        scheduler=scheduler,
        trials={"max": members, "parallel": slots},
        checkpoints={"every": "10m", "keep_last": keep[0], "keep_best": keep[1]},
        failure={"user_retries": 1, "infra_retries": 5},
        engine={"type": "simulate", "curve": "simulated_sweeps:troubled"},
    )
    state = lab.run(spec, backend=Saving)
    auditor = Auditor(spec)
    for event in lab.events():
        auditor.read(event)
    auditor.close()
    check(spec, lab.events())
    again = fold(spec, lab.events())
    assert {name: trial.checkpoints for name, trial in again.trials.items()} == {
        name: trial.checkpoints for name, trial in state.trials.items()
    }
    lab.journal.store.close()


def test_a_simulated_sweep_does_go_on_within_steps(tmp_path):
    """Otherwise the test above would prove nothing."""
    lab = Lab.at(tmp_path)
    lab.run(make_spec(checkpoints={"every": "10m"}), backend=Saving)
    orders = [event.order for event in lab.events() if isinstance(event, Ordered)]
    assert sum(order.start is not None and order.start.within > 0 for order in orders) >= 3
