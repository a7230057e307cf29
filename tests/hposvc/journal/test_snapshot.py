"""Snapshots of long journals: they say what the journal says, or nothing."""

import re
from random import Random

import pytest
from simulated_sweeps import CALLS, Flaky, Lab, make_several, make_spec

from hposvc import api
from hposvc import spec as specs
from hposvc.events import Reported, to_json
from hposvc.journal import snapshot
from hposvc.journal.follow import Follow
from hposvc.journal.home import Home
from hposvc.state.sweep import SweepState

TROUBLED = {"type": "simulate", "curve": "simulated_sweeps:troubled"}
SWEEPS = {
    "asha": make_spec(scheduler="asha", engine=TROUBLED, failure={"infra_retries": 50}),
    "pbt": make_spec(scheduler={"type": "pbt", "interval": 2, "mutate": {"lr": {}}}),
    "front": make_several(),
    "finalists": make_spec(finalists={"top": 2, "seeds": 2}),
}


@pytest.fixture
def sweeps(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot, "WORTH", 20)
    CALLS.clear()
    home = Home.of(tmp_path / "home", {})
    return api.Sweeps(home, home.journal())


def folded(sweeps, row):
    """Return what the journal says, read from its beginning."""
    state = SweepState(specs.restore(row.spec))
    for _, event in sweeps.journal.read(row.id):
        state.apply(event)
    return state


def facts(state):
    """Return all that is known, in a form in which NaN equals itself."""
    hidden = {"spec", "checkpoints", "_facts", "_observed", "_changed"}
    known = {name: value for name, value in vars(state).items() if name not in hidden}
    manager = state.checkpoints
    checkpoints = (manager.size, manager.over, manager.lent, manager.dropped)
    text = repr([known, checkpoints, state.trials.history(), specs.dump(state.spec)])
    # Two equal sets may name their members in another order.
    return re.sub(r"\{('t\d+'(, 't\d+')*)\}", lambda names: f"{sorted(names[1])}", text)


def run(sweeps, tmp_path, spec):
    row = api.create(sweeps, spec, "s")
    Lab(sweeps.journal, tmp_path).run(spec, row.id, Flaky)
    return row


@pytest.mark.parametrize("name", SWEEPS)
def test_a_snapshot_at_any_event_says_what_the_journal_says(sweeps, tmp_path, name):
    row = run(sweeps, tmp_path, SWEEPS[name])
    events = list(sweeps.journal.read(row.id))
    random = Random(1)
    for seq in sorted(random.sample(range(1, len(events)), 5)):
        follow = Follow(sweeps, row, lambda: SweepState(specs.restore(row.spec)))
        event = follow.apply(events[:seq])
        latest = snapshot.Snapshot(seq, to_json(event), follow.state)
        snapshot.save(sweeps.home.snapshot(row.id), follow.identity, latest)
        read = begin(sweeps, row.id)
        assert read.seq == seq
        assert facts(read.look()) == facts(folded(sweeps, row))


def begin(sweeps, sweep):
    """Return a sweep as of its snapshot, or as of no events."""
    follow = sweeps.follow(sweep)
    assert follow.state.spec
    return follow


def test_a_look_at_a_long_journal_leaves_a_snapshot_and_the_next_one_uses_it(sweeps, tmp_path):
    row = run(sweeps, tmp_path, SWEEPS["asha"])
    first = api.load(sweeps, "s")
    again = begin(sweeps, "s")
    assert again.seq == sweeps.journal.last("s") > 20
    assert sweeps.record_of(again.row, again.look).status() == first.status()
    assert facts(again.state) == facts(folded(sweeps, row))


def test_a_journal_that_went_another_way_is_read_from_its_beginning(sweeps, tmp_path):
    """A database that was set back to a backup goes on under the same numbers."""
    row = run(sweeps, tmp_path, SWEEPS["asha"])
    api.load(sweeps, "s")
    file = sweeps.home.snapshot("s")
    cached = snapshot.load(file, sweeps.follow(row.id).identity)
    other = to_json(Reported(0.0, 1, "t0001", 1, {"loss": 0.0}))
    snapshot.save(
        file, sweeps.follow(row.id).identity, snapshot.Snapshot(cached.seq, other, cached.state)
    )
    assert begin(sweeps, "s").seq == 0
    beyond = snapshot.Snapshot(cached.seq + 5, cached.event, cached.state)
    snapshot.save(file, sweeps.follow(row.id).identity, beyond)
    assert begin(sweeps, "s").seq == 0


def test_a_snapshot_of_other_code_or_with_another_byte_is_none(sweeps, tmp_path, monkeypatch):
    row = run(sweeps, tmp_path, SWEEPS["asha"])
    api.load(sweeps, "s")
    file, identity = sweeps.home.snapshot("s"), sweeps.follow(row.id).identity
    assert snapshot.load(file, identity) is not None
    assert snapshot.load(file, "another sweep") is None
    with monkeypatch.context() as later:
        later.setattr(snapshot, "_build", lambda: "tomorrow's")
        assert snapshot.load(file, identity) is None
    text = bytearray(file.read_bytes())
    text[-10] ^= 1
    file.write_bytes(text)
    assert snapshot.load(file, identity) is None
    assert begin(sweeps, "s").seq == 0
    file.unlink()
    assert snapshot.load(file, identity) is None
