"""What `gc` frees. If these fail it deletes what somebody needs, or leaves disks to fill up."""

import json
import os
import time

import pytest

from hposvc import api, leftovers
from hposvc import spec as specs
from hposvc.cli import main
from hposvc.events import Attached, Checkpointed, Ordered, Proposed, Reported, Rested
from hposvc.home import Home, sign
from hposvc.journal import SweepRow
from hposvc.lease import Lease
from trainables.checkpoints import checkpoint, stores
from trainables.load import PICKLE

SPEC = {
    "trainable": "somewhere:train",
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 9},
    "parameters": {"lr": {"min": 0.1, "max": 1.0}},
    "search": "random",
    "trials": {"max": 1},
    "engine": "local",
}


@pytest.fixture
def sweeps(tmp_path):
    home = Home.of(tmp_path / "home", {})
    opened = api.Sweeps(home, home.journal())
    yield opened
    opened.journal.store.close()


def record(sweeps, name="one", **changes):
    """A sweep at rest, whose only trial has done one step; the folder of its checkpoints."""
    spec = specs.load({**SPEC, **changes})
    row = SweepRow(name, name, "default", 0.0, specs.dump(spec), {})
    assert sweeps.journal.create(row)
    folder = sweeps.home.folder(name, spec.storage) / "checkpoints"
    saved = save(folder, "t0001", "1-1")
    state = api.load(sweeps, name).state
    happened = [Attached(1.0, "here:1"), Proposed(2.0, "t0001", {"lr": 0.1}, {}, 9)]
    for event in happened:
        state.apply(event)
    order = state.trials["t0001"].next_order(1, 9, ())
    happened += [
        Ordered(3.0, order),
        Checkpointed(4.0, 1, "t0001", saved),
        Reported(4.0, 1, "t0001", 1, {"loss": 0.5}),
        Rested(5.0),
    ]
    sweeps.journal.append(name, 0, happened)
    return folder


def save(folder, trial, name):
    draft = folder / ".scratch" / "draft"
    draft.mkdir(parents=True)
    (draft / "weights").write_bytes(b"1" * 1000)
    saved = checkpoint.store(draft, folder / trial / name, 1)
    (folder / ".scratch").rmdir()
    return saved


def names(found):
    return {(one.what, one.path.rsplit("/", 1)[1], one.why) for one in found}


def make(path, size=10):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"1" * size)
    return path


def litter(folder):
    """What drivers and ranks that died leave behind."""
    save(folder, "t0001", "1-2")
    make(folder / "t0001" / ".removed-1-0" / "weights")
    make(folder / ".scratch" / "t0001-1-0" / "tmpx" / "weights")


def test_a_checkpoint_on_the_shelf_stays_and_what_is_on_no_record_goes(sweeps):
    folder = record(sweeps)
    litter(folder)
    found = leftovers.of_sweep(sweeps, "one")
    assert names(found) == {
        ("checkpoint", "1-2", "not on record"),
        ("part", ".removed-1-0", "half deleted"),
        ("part", "t0001-1-0", "half written"),
    }
    for one in found:
        leftovers.free(one)
    assert leftovers.of_sweep(sweeps, "one") == []
    assert {path.name for path in folder.glob("*/*")} == {"1-1"}


def test_a_sweep_with_a_living_driver_is_left_alone(sweeps):
    litter(record(sweeps))
    lease = Lease(sweeps.journal.store, "one")
    lease.acquire()
    assert leftovers.of_sweep(sweeps, "one") == []
    lease.release()
    assert len(leftovers.of_sweep(sweeps, "one")) == 3


def test_what_a_driver_that_begins_meanwhile_writes_is_never_a_leftover(sweeps):
    """Its orders are not in the journal that was read, and its first checkpoint is on no record."""
    folder = record(sweeps)
    save(folder, "t0001", "2-2")
    make(folder / ".scratch" / "t0001-2-0" / "tmpx" / "weights")
    assert leftovers.of_sweep(sweeps, "one") == []


def test_what_is_not_called_as_we_call_things_is_not_ours(sweeps):
    folder = record(sweeps)
    make(folder / "t0001" / "notes" / "mine.txt")
    make(folder / "t0001" / "1-2-old" / "weights")
    assert leftovers.of_sweep(sweeps, "one") == []


def test_a_store_is_cleaned_as_a_folder_is(sweeps, tmp_path):
    url = f"memory://bucket-{tmp_path.name}/sweeps"
    folder = record(sweeps)
    state = api.load(sweeps, "one").state
    place = f"{url}/one/checkpoints"
    for name in ("1-1", "1-2", "2-1"):
        stores.upload(f"{place}/t0001/{name}", folder / "t0001" / "1-1")
    found = list(leftovers._in_store(place, state))
    assert names(found) == {("checkpoint", "1-2", "not on record")}
    size = api.load(sweeps, "one").state.trials["t0001"].checkpoints[0].size
    assert [one.size for one in found] == [size]
    leftovers.free(found[0])
    assert set(stores.sizes(place, depth=2)) == {"t0001/1-1", "t0001/2-1"}


def test_folders_and_pickles_of_no_sweep_go_and_those_of_others_stay(sweeps):
    home = sweeps.home.path
    pickle, other, fresh = (make(home / "pickles" / f"{name}.pkl") for name in "abc")
    record(sweeps, trainable=f"{PICKLE}{pickle}")
    for old in (pickle, other):
        os.utime(old, (time.time() - 9999,) * 2)
    make(home / "sweeps" / "gone" / "logs" / "t0001" / "1-0.log", 77)
    sign(home / "sweeps" / "gone", f"{sweeps.journal.store}")
    make(home / "sweeps" / "mine" / "thesis.tex")
    make(home / "sweeps" / "theirs" / "logs" / "t0001" / "1-0.log", 77)
    sign(home / "sweeps" / "theirs", "postgresql://there/hposvc")
    found = leftovers.of_home(sweeps)
    assert {(one.what, one.path, one.size) for one in found} == {
        ("folder", f"{home}/sweeps/gone", 77 + len(f"{sweeps.journal.store}")),
        ("pickle", f"{other}", 10),
    }
    for one in found:
        leftovers.free(one)
    assert fresh.exists()
    assert leftovers.of_home(sweeps) == []


def test_no_folder_goes_where_the_journal_may_be_another_one(sweeps, tmp_path):
    """A journal that was moved or lost knows none of them, and all results would go."""
    make(sweeps.home.path / "sweeps" / "gone" / "logs" / "t0001" / "1-0.log")
    assert leftovers.of_home(sweeps) == []
    moved = Home.of(sweeps.home.path, {"HPOSVC_DB": f"sqlite:///{tmp_path / 'other.db'}"})
    elsewhere = api.Sweeps(moved, moved.journal())
    record(elsewhere)
    assert leftovers.of_home(elsewhere) == []
    elsewhere.journal.store.close()


def test_gc_says_what_it_would_free_and_frees_it(sweeps, capsys):
    folder = record(sweeps)
    litter(folder)
    home = ("--home", sweeps.home.path)
    told = hposvc(capsys, "gc", "--dry-run", *home)
    assert "not on record" in told
    assert told.endswith("to be freed\n")
    assert len(json.loads(hposvc(capsys, "gc", "one", "--dry-run", "-o", "json", *home))) == 3
    freed = json.loads(hposvc(capsys, "gc", "-o", "json", *home))
    assert {one["freed"] for one in freed} == {True}
    assert hposvc(capsys, "gc", *home) == "nothing to free\n"
    assert {path.name for path in folder.glob("*/*")} == {"1-1"}


def hposvc(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    assert not left.value.code
    return capsys.readouterr().out
