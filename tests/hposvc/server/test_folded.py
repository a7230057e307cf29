"""Folded states: a look applies new events only, memory is bounded, readers are safe."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import recorded_home

from hposvc.events import Decided
from hposvc.server.folded import Folded, Unreadable


def test_a_look_reads_only_new_events(sweeps, monkeypatch):
    recorded_home.reported_events(sweeps, "long", 3000)
    row, folded = sweeps.journal.find("long"), Folded(sweeps)
    asked = []
    page = sweeps.journal._page
    monkeypatch.setattr(
        sweeps.journal, "_page", lambda *args: asked.append(args[1:3]) or page(*args)
    )
    with folded.open(row) as sweep:
        assert sweep.record().state.trials["t0001"].step == 2997
    assert len(asked) == 3
    asked.clear()
    with folded.open(row) as sweep:
        sweep.record()
    assert asked == []
    recorded_home.reported_events(sweeps, "long", 3005)
    with folded.open(row) as sweep:
        assert sweep.record().state.trials["t0001"].step == 3002
        assert sweep.seq == 3005
    assert asked == [(3000, 3005)]


def test_many_readers_and_a_writer_are_safe(sweeps):
    recorded_home.reported_events(sweeps, "busy", 50)
    row, folded = sweeps.journal.find("busy"), Folded(sweeps)

    def read(_):
        with folded.open(row) as sweep:
            record = sweep.record()
            (trial,) = record.trials()
            assert trial["step"] == sweep.seq - 3
            return sweep.seq

    with ThreadPoolExecutor(8) as pool:
        reads = [pool.submit(read, number) for number in range(100)]
        for count in range(51, 120):
            recorded_home.reported_events(sweeps, "busy", count)
        reads += [pool.submit(read, number) for number in range(100)]
        numbers = [each.result() for each in reads]
    assert numbers[-1] == 119
    assert folded.look(row).trials["t0001"].step == 116


def test_states_in_memory_have_a_bound(sweeps):
    folded = Folded(sweeps, most_events=2000)
    rows = []
    for number in range(12):
        recorded_home.reported_events(sweeps, f"sweep-{number}", 300)
        rows.append(sweeps.journal.find(f"sweep-{number}"))
    for row in [*rows, *rows]:
        folded.look(row)
        assert folded.events <= 2000
    assert 1 < len(folded._entries) < 12
    recorded_home.reported_events(sweeps, "large", 5000)
    assert folded.look(sweeps.journal.find("large")).trials["t0001"].step == 4997
    assert len(folded._entries) == 1  # larger than the bound, but the one in use


def test_a_sweep_that_cannot_be_read_says_so_each_time_and_is_read_again(sweeps):
    recorded_home.unreadable(sweeps, "later")
    folded, row = Folded(sweeps), sweeps.journal.find("later")
    for _ in range(2):
        with pytest.raises(Unreadable, match="teleported"), folded.open(row) as sweep:
            sweep.record()
    recorded_home.cut_off(sweeps, "broken")
    row = sweeps.journal.find("broken")
    folded.look(row)
    sweeps.journal.append("broken", 5, [Decided(6.0, "t0099", None, 1, "stop", "user")])
    for _ in range(2):
        with pytest.raises(Unreadable, match="t0099"), folded.open(row) as sweep:
            sweep.record()
