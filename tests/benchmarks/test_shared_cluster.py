"""The simulated cluster of benchmarks/shared_cluster.py keeps its books right."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from cluster_model import Cluster, Room
from cluster_policies import Kueue
from cluster_sweeps import Sweep, Trial, entitled
from shared_cluster import POLICIES, QUICK, Record, draw, main, simulate


@pytest.fixture(scope="module")
def outcomes():
    size = replace(QUICK, load=1.0)
    sweeps = draw(size)
    return sweeps, [simulate(name, size, sweeps) for name in POLICIES]


def test_every_policy_trains_all_of_the_same_trials(outcomes):
    sweeps, each = outcomes
    for outcome in each:
        cluster = outcome.cluster
        assert len(cluster.ended) == len(sweeps)
        assert cluster.done_gpu_s == pytest.approx(sum(sweep.gpu_s for sweep in sweeps))
        assert (cluster.busy, cluster.room.idle) == (0, cluster.room.total)


def test_no_sweep_is_faster_than_alone(outcomes):
    for outcome in outcomes[1]:
        for live in outcome.cluster.ended:
            assert live.first_slot_at >= live.sweep.arrives_at
            assert live.ended_at - live.sweep.arrives_at >= live.sweep.gpu_s / (
                live.sweep.ranks * live.sweep.parallel
            )


def test_users_hold_no_more_than_the_cluster_has(outcomes):
    for outcome in outcomes[1]:
        most = outcome.cluster.room.total * 3600 + 1e-6
        for rows in (outcome.record.had_U, outcome.record.due_U):
            assert all(0 <= hour.sum() <= most for hour in rows)


def test_only_evictions_train_twice(outcomes):
    for outcome in outcomes[1]:
        if not isinstance(outcome.policy, Kueue):
            assert outcome.cluster.lost_gpu_s == pytest.approx(0.0, abs=1e-3)


def test_an_eviction_trains_again_from_the_last_checkpoint():
    trials = (Trial(step_s=100.0, rungs=(1, 3)),)
    first = Sweep("a", "u0", 0, 0.0, 8, 1, saves_each_step=False, trials=trials)
    second = replace(first, name="b", priority=1, arrives_at=200.0)
    cluster = Cluster([first, second], 1, Kueue({"u0": 1.0}), look_s=10.0)
    cluster.run(Record({"u0": 1.0}, 10.0))
    # It came to its rung at 10 + 30 + 100 s, and is evicted at 200 s, before it is at the next.
    assert cluster.lost_gpu_s == pytest.approx(8 * 60.0)
    assert cluster.start_gpu_s == pytest.approx(8 * 3 * 30.0)
    assert [live.sweep.name for live in cluster.ended] == ["b", "a"]


def test_entitlements_are_by_weight_and_never_more_than_is_wanted():
    assert entitled([100, 100, 5], [1, 2, 2], 35) == pytest.approx([10, 20, 5])
    assert entitled([3, 0, 5], [1, 1, 1], 35) == pytest.approx([3, 0, 5])


def test_room_is_counted_as_it_is_placed():
    rng = np.random.default_rng(0)
    for ranks in (1, 2, 4, 8, 16):
        room = Room(8)
        for _ in range(10):
            places = room.place(int(rng.integers(1, 6)))
            room.take(places)
        count = 0
        while (places := room.place(ranks)) is not None:
            assert sum(places.values()) == ranks
            assert room.count(ranks) > 0
            room.take(places)
            count += 1
        assert room.count(ranks) == 0
        assert min(room.free.values()) >= 0


def test_the_quick_run_prints_tables_and_draws(tmp_path, monkeypatch, capsys):
    picture = tmp_path / "queue.png"
    monkeypatch.setattr(sys, "argv", ["shared_cluster.py", "--quick", "--plot", str(picture)])
    main()
    printed = capsys.readouterr().out
    assert all(printed.count(f"| {name} |") == 3 for name in POLICIES)
    assert picture.read_bytes().startswith(b"\x89PNG")
