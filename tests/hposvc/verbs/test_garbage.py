"""`hposvc gc` frees garbage only. If not, it deletes needed files, or disks fill up."""

import os
import time

import pytest

from hposvc import api
from hposvc import spec as specs
from hposvc.events import Attached, Checkpointed, Ordered, Proposed, Reported, Suspended
from hposvc.journal import submissions
from hposvc.journal.home import Home, sign
from hposvc.journal.journal import SweepRow
from hposvc.journal.lease import Lease
from hposvc.verbs import garbage
from trainables.load import PICKLE
from trainables.storage import checkpoint, stores

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
    """Record a suspended sweep whose only trial has done one step; return its checkpoint folder."""
    spec = specs.load({**SPEC, **changes})
    row = SweepRow(name, name, "default", 0.0, specs.dump(spec), {})
    assert sweeps.journal.create(row)
    folder = sweeps.home.folder(name, spec.storage) / "checkpoints"
    saved = save(folder, "t0001", "1-1")
    state = api.load(sweeps, name).state
    history = [Attached(1.0, "here:1"), Proposed(2.0, "t0001", {"lr": 0.1}, {}, 9)]
    for event in history:
        state.apply(event)
    order = state.trials["t0001"].next_order(1, 9, ())
    history += [
        Ordered(3.0, order),
        Checkpointed(4.0, 1, "t0001", saved),
        Reported(4.0, 1, "t0001", 1, {"loss": 0.5}),
        Suspended(5.0),
    ]
    sweeps.journal.append(name, 0, history)
    return folder


def save(folder, trial, name):
    draft = folder / ".scratch" / "draft"
    draft.mkdir(parents=True)
    (draft / "weights").write_bytes(b"1" * 1000)
    saved = checkpoint.store(draft, folder / trial / name, 1)
    (folder / ".scratch").rmdir()
    return saved


def names(found):
    return {(item.what, item.path.rsplit("/", 1)[1], item.why) for item in found}


def make(path, size=10):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"1" * size)
    return path


def litter(folder):
    """Write files like those that dead drivers and ranks leave behind."""
    save(folder, "t0001", "1-2")
    make(folder / "t0001" / ".removed-1-0" / "weights")
    make(folder / ".scratch" / "t0001-1-0" / "tmpx" / "weights")


def test_a_kept_checkpoint_stays_and_unrecorded_ones_are_garbage(sweeps):
    folder = record(sweeps)
    litter(folder)
    items = garbage.of_sweep(sweeps, "one")
    assert names(items) == {
        ("checkpoint", "1-2", "not on record"),
        ("part", ".removed-1-0", "half deleted"),
        ("part", "t0001-1-0", "half written"),
    }
    for item in items:
        garbage.free(item)
    assert garbage.of_sweep(sweeps, "one") == []
    assert {path.name for path in folder.glob("*/*")} == {"1-1"}


def test_a_sweep_with_a_living_driver_is_left_alone(sweeps):
    litter(record(sweeps))
    lease = Lease(sweeps.journal.store, "one")
    lease.acquire()
    assert garbage.of_sweep(sweeps, "one") == []
    lease.release()
    assert len(garbage.of_sweep(sweeps, "one")) == 3


def test_files_of_a_driver_that_starts_meanwhile_are_never_garbage(sweeps):
    """The new driver's orders and checkpoints are not in the journal that `gc` has read."""
    folder = record(sweeps)
    save(folder, "t0001", "2-2")
    make(folder / ".scratch" / "t0001-2-0" / "tmpx" / "weights")
    assert garbage.of_sweep(sweeps, "one") == []


def test_files_with_names_that_hposvc_does_not_use_are_not_garbage(sweeps):
    folder = record(sweeps)
    make(folder / "t0001" / "notes" / "mine.txt")
    make(folder / "t0001" / "1-2-old" / "weights")
    assert garbage.of_sweep(sweeps, "one") == []


def test_a_store_is_cleaned_as_a_folder_is(sweeps, tmp_path):
    url = f"memory://bucket-{tmp_path.name}/sweeps"
    folder = record(sweeps)
    state = api.load(sweeps, "one").state
    place = f"{url}/one/checkpoints"
    for name in ("1-1", "1-2", "2-1"):
        stores.upload(f"{place}/t0001/{name}", folder / "t0001" / "1-1")
    items = list(garbage._in_store(place, state))
    assert names(items) == {("checkpoint", "1-2", "not on record")}
    size = api.load(sweeps, "one").state.trials["t0001"].checkpoints[0].size
    assert [item.size for item in items] == [size]
    garbage.free(items[0])
    assert set(stores.sizes(place, depth=2)) == {"t0001/1-1", "t0001/2-1"}


def test_folders_and_pickles_of_no_sweep_go_and_those_of_others_stay(sweeps):
    home = sweeps.home.path
    pickle, other, fresh = (make(home / "pickles" / f"{name * 64}.pkl") for name in "abc")
    mine = make(home / "pickles" / "my-own.pkl")
    record(sweeps, trainable=f"{PICKLE}{pickle}")
    for old in (pickle, other, mine):
        os.utime(old, (time.time() - 9999,) * 2)
    make(home / "sweeps" / "gone" / "logs" / "t0001" / "1-0.log", 77)
    sign(home / "sweeps" / "gone", f"{sweeps.journal.store}")
    make(home / "sweeps" / "mine" / "thesis.tex")
    make(home / "sweeps" / "theirs" / "logs" / "t0001" / "1-0.log", 77)
    sign(home / "sweeps" / "theirs", "postgresql://there/hposvc")
    items = garbage.of_home(sweeps)
    assert {(item.what, item.path, item.size) for item in items} == {
        ("folder", f"{home}/sweeps/gone", 77 + len(f"{sweeps.journal.store}")),
        ("pickle", f"{other}", 10),
    }
    for item in items:
        garbage.free(item)
    assert fresh.exists()
    assert mine.exists()
    assert garbage.of_home(sweeps) == []


def test_no_folder_goes_where_the_journal_may_be_another_one(sweeps, tmp_path):
    """A journal that was moved or lost knows no sweep, so all results would be deleted."""
    make(sweeps.home.path / "sweeps" / "gone" / "logs" / "t0001" / "1-0.log")
    assert garbage.of_home(sweeps) == []
    moved = Home.of(sweeps.home.path, {"HPOSVC_DB": f"sqlite:///{tmp_path / 'other.db'}"})
    elsewhere = api.Sweeps(moved, moved.journal())
    record(elsewhere)
    assert garbage.of_home(elsewhere) == []
    elsewhere.journal.store.close()


def test_submitted_files_that_no_sweep_uses_go_after_an_hour(sweeps):
    home, used, unused, fresh, halved = sweeps.home, "a" * 64, "b" * 64, "c" * 64, "d" * 64
    sign(home.archives.parent, f"{sweeps.journal.store}")
    for name in (used, unused, fresh, halved):
        make(home.unpacked / name / "train.py")
    zips = [make(home.archives / f"{name}.zip") for name in (used, unused, fresh)]
    draft = make(home.archives / ".0123456789abcdef")
    row = SweepRow("one", "one", "default", 0.0, specs.dump(specs.load(SPEC)), {})
    submissions.create(sweeps.journal, row, "ann", "digest", used)
    for old in (
        *zips[:2],
        draft,
        *(home.unpacked / name for name in (used, unused, fresh, halved)),
    ):
        os.utime(old, (time.time() - 7200,) * 2)
    found = garbage.of_home(sweeps)
    assert {item.path for item in found if item.what == "archive"} == {
        f"{path}" for path in (zips[1], home.unpacked / unused, draft, home.unpacked / halved)
    }
    for item in found:
        garbage.free(item)
    assert {path.name for path in home.unpacked.iterdir()} == {used, fresh}
    assert (home.unpacked / used / "train.py").exists()
