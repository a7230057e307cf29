"""Follow: a look applies new events only, memory is bounded, readers are safe."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import recorded_home
from sqlalchemy import delete

from hposvc import api
from hposvc.events import Reported
from hposvc.journal.database import EVENTS
from hposvc.journal.follow import Follow, Followers


def states(sweeps, most_events=500_000):
    return Followers(partial(api.follow_row, sweeps), most_events)


def test_a_look_reads_only_new_events(sweeps, monkeypatch):
    recorded_home.reported_events(sweeps, "long", 3000)
    row, followers = sweeps.journal.find("long"), states(sweeps)
    asked = []
    page = sweeps.journal._page
    monkeypatch.setattr(
        sweeps.journal, "_page", lambda *args: asked.append(args[1:3]) or page(*args)
    )
    with followers.open(row) as follow:
        assert follow.look().trials["t0001"].step == 2997
    assert len(asked) == 3
    asked.clear()
    with followers.open(row) as follow:
        follow.look()
    assert asked == [(2999, 3000)], "whether the last one is still there"
    asked.clear()
    recorded_home.reported_events(sweeps, "long", 3005)
    with followers.open(row) as follow:
        assert follow.look().trials["t0001"].step == 3002
        assert follow.seq == 3005
    assert asked == [(2999, 3005)]


def test_a_fold_begins_again_if_an_older_copy_takes_the_journals_place(sweeps):
    recorded_home.reported_events(sweeps, "back", 30)
    follow = api.follow_row(sweeps, sweeps.journal.find("back"))
    assert follow.look().trials["t0001"].step == 27
    with sweeps.journal.store.writing() as connection:
        connection.execute(delete(EVENTS).where(EVENTS.c.seq > 10))
    assert (follow.look().trials["t0001"].step, follow.seq) == (7, 10)
    sweeps.journal.append("back", 10, [Reported(99.0, 1, "t0001", 8, {"loss": 1.0})])
    assert follow.look().trials["t0001"].step == 8


def test_many_readers_and_a_writer_are_safe(sweeps):
    recorded_home.reported_events(sweeps, "busy", 50)
    row, followers = sweeps.journal.find("busy"), states(sweeps)

    def read(_):
        with followers.open(row) as follow:
            (trial,) = follow.look().trials.values()
            assert trial.step == follow.seq - 3
            return follow.seq

    with ThreadPoolExecutor(8) as pool:
        reads = [pool.submit(read, number) for number in range(100)]
        for count in range(51, 120):
            recorded_home.reported_events(sweeps, "busy", count)
        reads += [pool.submit(read, number) for number in range(100)]
        numbers = [each.result() for each in reads]
    assert numbers[-1] == 119
    assert followers.look(row).trials["t0001"].step == 116


def test_states_in_memory_have_a_bound(sweeps):
    followers = states(sweeps, most_events=2000)
    rows = []
    for number in range(12):
        recorded_home.reported_events(sweeps, f"sweep-{number}", 300)
        rows.append(sweeps.journal.find(f"sweep-{number}"))
    for row in [*rows, *rows]:
        followers.look(row)
        assert followers.events <= 2000
    assert 1 < len(followers._entries) < 12
    recorded_home.reported_events(sweeps, "large", 5000)
    assert followers.look(sweeps.journal.find("large")).trials["t0001"].step == 4997
    assert len(followers._entries) == 1  # larger than the bound, but the one in use


def test_what_somebody_reads_is_not_forgotten(sweeps):
    followers = states(sweeps, most_events=0)
    for name in ("one", "other"):
        recorded_home.cut_off(sweeps, name)
    row = sweeps.journal.find("one")
    with followers.open(row) as follow:
        state = follow.look()
        followers.look(sweeps.journal.find("other"))
        assert follow.state is state
    followers.look(sweeps.journal.find("other"))
    with followers.open(row) as follow:
        assert follow.seq == 0


def test_a_sweep_that_has_the_id_of_a_deleted_one_is_read_from_its_beginning(sweeps):
    followers = states(sweeps)
    recorded_home.reported_events(sweeps, "same", 50)
    assert followers.look(sweeps.journal.find("same")).trials["t0001"].step == 47
    sweeps.journal.remove("same")
    recorded_home.reported_events(sweeps, "same", 20)
    assert followers.look(sweeps.journal.find("same")).trials["t0001"].step == 17


class Steps:
    """A fold that refuses its third event, once it has half of it."""

    def __init__(self):
        self.count = 0

    def apply(self, event):
        self.count += 1
        if self.count == 3:
            raise ValueError("no third event")


def test_a_fold_that_an_event_broke_begins_again(sweeps):
    recorded_home.reported_events(sweeps, "s", 10)
    follow = Follow(sweeps, sweeps.journal.find("s"), Steps)
    assert follow.read_to(2).count == 2
    for _ in range(2):
        with pytest.raises(ValueError, match="third"):
            follow.look()
        assert (follow.seq, follow.state.count) == (0, 0)


def test_each_new_event_is_told_once_it_was_applied(sweeps):
    recorded_home.reported_events(sweeps, "s", 10)
    follow = api.follow_row(sweeps, sweeps.journal.find("s"))
    told = []
    follow.read_to(4)
    follow.look(lambda event: told.append((follow.seq, follow.state.trials["t0001"].step)))
    assert told == [(seq, seq - 3) for seq in range(5, 11)]
