"""Shares over hours of a simulated cluster: nobody starves, nothing idles, nothing is lost."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
from cluster_model import Cluster
from cluster_policies import Ours
from cluster_sweeps import START_S, Sweep, Trial, draw_sweeps

HOUR_S = 3600.0
LOOK_S = 30.0


class Watch:
    """What each sweep had, and what idled; in GPU-seconds."""

    def __init__(self, since: float = 0.0) -> None:
        self.since = since
        self.had: dict[str, float] = {}
        self.idle = 0.0  # though a slot that somebody wants fits
        self.passed = 0.0  # of all GPUs
        self.slot_hours = 0.0

    def see(self, cluster: Cluster) -> None:
        if cluster.now < self.since:
            return
        self.passed += cluster.room.total * LOOK_S
        short = [live for live in cluster.live.values() if live.wanted > len(live.slots)]
        if any(cluster.room.count(live.sweep.ranks) for live in short):
            self.idle += cluster.room.idle * LOOK_S
        for name, live in cluster.live.items():
            gpu_s = len(live.slots) * live.sweep.ranks * LOOK_S
            self.had[name] = self.had.get(name, 0.0) + gpu_s
            self.slot_hours += len(live.slots) * LOOK_S / HOUR_S


def sweep(name: str, ranks: int = 1, parallel: int = 64, step_s: float = 120.0, **more) -> Sweep:
    """Return a sweep of a user of the same name that wants slots for a week."""
    values = {"user": name, "priority": 0, "arrives_at": 0.0, "saves_each_step": True, **more}
    trials = more.pop("trials", 20_000)
    values["trials"] = tuple(
        Trial(step_s * (0.8 + 0.1 * (n % 5)), (1, 3, 9)[: 1 + n % 3]) for n in range(trials)
    )
    return Sweep(name, ranks=ranks, parallel=parallel, **values)


def run(
    sweeps: list[Sweep], nodes: int, weights: dict[str, float] | None = None, **more: float
) -> tuple[Cluster, Watch]:
    """Run sweeps by our shares, to the end or until a time."""
    ours = Ours.of(weights or {each.user: 1.0 for each in sweeps})
    cluster, watch = Cluster(sweeps, nodes, ours, LOOK_S), Watch(more.pop("since", 0.0))
    cluster.run(watch, **more)
    return cluster, watch


def drawn(seed: int) -> list[Sweep]:
    """Return twenty sweeps of all sizes for 64 GPUs, twice as many as these can train at once."""
    sweeps = draw_sweeps(20, 64, 5, 4 * HOUR_S, load=2.0, seed=seed)
    return [replace(each, priority=0) for each in sweeps]


def longest_s(sweep: Sweep) -> float:
    """Return the longest time for which an order of a sweep may keep a slot that is lost."""
    pace = max(trial.step_s for trial in sweep.trials)
    return pace * (1 if sweep.saves_each_step else 18)


@pytest.fixture(
    scope="module", params=[0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2))]
)
def mixed(request):
    sweeps = drawn(request.param)
    return sweeps, *run(sweeps, 8)


def test_no_sweep_starves(mixed):
    sweeps, cluster, _ = mixed
    bound = 2 * max(longest_s(each) for each in sweeps) + HOUR_S / 2
    assert len(cluster.ended) == len(sweeps)
    for live in cluster.ended:
        assert live.first_slot_at - live.sweep.arrives_at <= bound, live.sweep.name


def test_no_step_is_lost_at_a_rung(mixed):
    sweeps, cluster, _ = mixed
    assert cluster.lost_gpu_s == pytest.approx(0.0, abs=1e-3)
    assert cluster.done_gpu_s == pytest.approx(sum(each.gpu_s for each in sweeps))


def test_room_that_fits_idles_only_while_it_is_kept_for_a_gang(mixed):
    _, _, watch = mixed
    assert watch.idle <= 0.05 * watch.passed


def test_slots_do_not_change_hands_more_often_than_turns(mixed):
    _, cluster, watch = mixed
    changes = sum(live.changes for live in cluster.ended)
    assert changes <= 2 * watch.slot_hours


def test_short_steps_do_not_make_slots_change_hands():
    pair = [sweep(name, step_s=10.0) for name in "abc"]
    cluster, watch = run(pair, 1, until=6 * HOUR_S)
    changes = sum(live.changes for live in cluster.live.values())
    assert changes / watch.slot_hours <= 12  # `max_ahead` is five minutes


def test_small_slots_leave_no_gpu_idle():
    sweeps = [sweep(f"s{n}", parallel=10, trials=300, arrives_at=600.0 * n) for n in range(8)]
    _, watch = run(sweeps, 2)
    assert watch.idle == 0.0


def test_shares_come_to_the_weights():
    weights = {"a": 1.0, "b": 2.0, "c": 5.0}
    _, watch = run([sweep(name) for name in weights], 2, weights, until=24 * HOUR_S)
    total = sum(watch.had.values())
    for name, weight in weights.items():
        assert watch.had[name] / total == pytest.approx(weight / 8, rel=0.1)


@pytest.mark.parametrize(
    ("ranks", "nodes"),
    [(8, 1), (16, 2), *(pytest.param(ranks, 2, marks=pytest.mark.full) for ranks in (8, 12))],
)
def test_gangs_that_are_larger_than_their_share_get_it_too(ranks, nodes):
    """Backfill put off a gang for ever, and each look cleared another node for it."""
    sweeps = [sweep("gang", ranks, parallel=1), *(sweep(name) for name in "abc")]
    _, watch = run(sweeps, nodes, until=24 * HOUR_S)
    total = sum(watch.had.values())
    for name in watch.had:
        assert watch.had[name] / total == pytest.approx(0.25, rel=0.1), name
    assert total > 0.8 * watch.passed


def test_gangs_that_need_most_of_the_cluster_take_turns():
    pair = [sweep(name, 12, parallel=2, trials=60) for name in ("first", "second")]
    cluster, _ = run(pair, 2, until=200 * HOUR_S)
    first, second = sorted(cluster.ended, key=lambda live: live.sweep.name)
    assert len(cluster.ended) == 2
    assert first.changes > 5 or second.changes > 5  # not one after the other
    assert abs(first.ended_at - second.ended_at) < 0.2 * max(first.ended_at, second.ended_at)


@pytest.mark.parametrize("start_s", [900.0, 3000.0])
def test_gangs_that_start_for_turns_work_beside_others(start_s):
    """A slot that started was idle, so it was the first to be given back."""
    gang = sweep("gang", 8, parallel=1, start_s=start_s)
    cluster, watch = run([gang, sweep("small")], 1, until=24 * HOUR_S)
    assert cluster.live["gang"].reported >= cluster.live["gang"].opened > 1
    assert watch.had["small"] > 0.3 * watch.passed


def test_a_gang_that_never_starts_leaves_others_their_part():
    gang = sweep("gang", 8, parallel=1, start_s=1e9)
    cluster, watch = run([gang, *(sweep(name) for name in "abc")], 1, until=24 * HOUR_S)
    assert cluster.live["gang"].opened > 2
    assert watch.had["gang"] < 0.4 * watch.passed


def test_sweeps_that_start_for_turns_put_off_no_gang():
    slow = [sweep(name, parallel=8, step_s=60.0, start_s=900.0) for name in "ab"]
    gang = sweep("gang", 16, parallel=1, arrives_at=HOUR_S)
    cluster, watch = run([*slow, gang], 2, until=24 * HOUR_S)
    assert cluster.live["gang"].first_slot_at - HOUR_S <= HOUR_S
    assert watch.had["gang"] / sum(watch.had.values()) > 0.25


def test_a_higher_priority_takes_slots_that_start():
    low = sweep("low", start_s=1700.0)
    high = sweep("high", 8, parallel=1, trials=20, priority=1, arrives_at=600.0)
    cluster, _ = run([low, high], 1, until=HOUR_S / 2)
    assert cluster.live["high"].first_slot_at <= 600.0 + 2 * LOOK_S


def test_a_higher_priority_gets_its_slots_within_minutes_and_nothing_is_trained_twice():
    low = sweep("low", step_s=1800.0, trials=100, saves_each_step=False)
    high = sweep("high", 8, parallel=1, trials=20, priority=1, arrives_at=HOUR_S)
    cluster, _ = run([low, high], 1)
    waits = {live.sweep.name: live.first_slot_at - live.sweep.arrives_at for live in cluster.ended}
    assert waits["high"] <= 3 * LOOK_S + START_S
    assert cluster.lost_gpu_s == pytest.approx(0.0, abs=1e-3)
