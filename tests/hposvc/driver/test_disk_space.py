"""A full disk: the sweep rests, and goes on with nothing lost once there is room.

If these fail, trials are given up for a disk's fault, or a sweep runs on and can write nothing.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check
from simulated_sweeps import CALLS, Lab, at_desk, make_controller, make_spec
from small_disk import SIZE, small

from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.driver.disk_space import DiskSpace
from hposvc.driver.loop import Runner
from hposvc.driver.proposals import SyncProposer
from hposvc.events import Attached, Failed, StorageExhausted
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.journal.lease import Lease

MESSAGE = "Traceback ...\nOSError: [Errno 28] No space left on device: '/data/x'"


def two_at_work(**sections):
    desk = at_desk(trials={"max": 3, "parallel": 2}, **sections)
    first, second = desk.start(), desk.start()
    desk.report(first, 1, 0.5)
    desk.report(second, 1, 0.4)
    return desk, first, second


def fill(desk, order):
    return desk.happen(Failed(desk.time, order.id, order.trial, "storage", MESSAGE))


def test_a_full_disk_parks_what_runs_and_is_no_trial_s_fault():
    desk, first, second = two_at_work(failure={"infra_retries": 0})
    full, suspended = fill(desk, first)
    assert full == StorageExhausted(0.0, "OSError: [Errno 28] No space left on device: '/data/x'")
    assert (suspended.trial, suspended.order, suspended.verdict, suspended.reason) == (
        "t0002",
        2,
        "park",
        "storage",
    )
    assert fill(desk, second) == [], "the same disk is full for all"
    suspension = desk.controller.finish(1.0)
    assert (suspension.kind, suspension.reason) == ("suspended", "disk full")
    desk.happen(suspension)
    assert desk.state.state == "PAUSED"
    assert {trial.state for trial in desk.state.trials.values()} == {"PENDING"}
    assert [trial.failures for trial in desk.state.trials.values()] == [{}, {}]


def test_a_sweep_goes_on_from_its_checkpoints_once_there_is_room():
    desk, first, second = two_at_work()
    fill(desk, first)
    desk.end(second)
    desk.happen(desk.controller.finish(1.0))
    desk.happen(Attached(2.0, "here:2"))
    assert (desk.state.state, desk.state.full) == ("RUNNING", "")
    again = [desk.start(), desk.start()]
    assert [(order.trial, order.first, order.start.step) for order in again] == [
        ("t0001", 2, 1),
        ("t0002", 2, 1),
    ]


class Cramped(Simulation):
    """Now and then a checkpoint finds no room."""

    def __post_init__(self):
        super().__post_init__()
        self._rng = Random(self.setting.spec.seed + int(self.setting.clock))

    def events(self, timeout_s):
        if self._runs and self._rng.random() < 0.05:
            run = self._runs.pop(self._rng.choice(list(self._runs)))
            return [Failed(self.now(), run.order.id, run.order.trial, "storage", MESSAGE)]
        return super().events(timeout_s)


@pytest.mark.long
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    scheduler=st.sampled_from(
        [
            {"type": "fifo"},
            {"type": "asha"},
            {"type": "asha", "mode": "promote"},
            {"type": "hyperband"},
            {"type": "pbt", "interval": 2, "mutate": {"lr": {}}},
        ]
    ),
)
def test_however_often_the_disk_is_full_every_step_is_done_once_and_no_trial_is_lost(
    tmp_path_factory, seed, scheduler
):
    CALLS.clear()
    folder = tmp_path_factory.mktemp("sweep")
    lab = Lab.at(folder)
    spec = make_spec(seed=seed, scheduler=scheduler, failure={"infra_retries": 0})
    while not (state := lab.run(spec, backend=Cramped)).finished:
        assert (state.state, state.reason) == ("PAUSED", "disk full")
        assert not state.trials.orders
    check(spec, lab.events())
    assert all(not trial.failures for trial in state.trials.values())
    lab.journal.store.close()


def test_nothing_starts_where_there_is_no_room_for_what_it_would_write(tmp_path):
    spec = make_spec()
    journal = Journal(Store(f"sqlite:///{tmp_path / 'x.db'}"))
    with small(tmp_path / "disk") as disk:
        (disk / "ballast").write_bytes(b"1" * (SIZE - 4096))
        state = Runner(
            sweep="s",
            controller=make_controller(spec),
            backend=Simulation(Setting("s", spec, disk, tmp_path)),
            proposer=SyncProposer(spec, spec.searcher()),
            journal=journal,
            lease=Lease(journal.store, "s"),
            disk_space=DiskSpace((tmp_path, disk)),
        ).run("here:1")
    assert (state.state, state.reason, len(state.trials)) == ("PAUSED", "disk full", 0)
    assert state.full == f"{disk} has 4 KiB free, 10.2 KiB are needed"
    assert [event.kind for _, event in journal.read("s")] == [
        "attached",
        "storage_exhausted",
        "suspended",
    ]
    journal.store.close()


def test_a_disk_of_many_checkpoints_has_room_and_one_of_two_has_none(tmp_path):
    with small(tmp_path / "disk") as disk:
        folder = disk / "not" / "there" / "yet"
        assert DiskSpace((folder,)).describe_shortage(0) == ""
        assert DiskSpace((folder, tmp_path)).describe_shortage(SIZE // 2 - 1) == ""
        shortage = DiskSpace((tmp_path, folder)).describe_shortage(SIZE // 2 + 1)
        assert shortage == f"{folder} has 1 MiB free, 1 MiB are needed"
        room = DiskSpace((folder,))
        assert room.describe_shortage(0) == ""
        assert room.describe_shortage(SIZE) == "", "it is looked at now and then, not in each turn"
