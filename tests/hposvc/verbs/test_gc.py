"""`hposvc gc` as its user sees it, also beside drivers that may begin at any moment."""

from pathlib import Path

import pytest
from printed import text_of
from simulated_sweeps import Lab, make_spec
from small_disk import fill, read_only, small

from hposvc import api
from hposvc import spec as specs
from hposvc.api import Sweeps
from hposvc.journal.home import claim
from hposvc.journal.lease import Lease
from hposvc.verbs import gc
from hposvc.verbs.garbage import Garbage
from hposvc.verbs.gc import compress, table
from trainables.runtime.assignment import log_file


@pytest.fixture
def sweeps(tmp_path, monkeypatch):
    monkeypatch.delenv("HPOSVC_DB", raising=False)
    opened = api.Sweeps.open(tmp_path / "home")
    row = api.create(opened, make_spec(), "valley")
    Lab(opened.journal, tmp_path).run(specs.restore(row.spec), "valley")
    return opened


def test_a_sweep_with_a_driver_is_left_to_it(sweeps):
    before = list(sweeps.journal.read("valley"))
    lease = Lease(sweeps.journal.store, "valley")
    lease.acquire()
    try:
        assert compress(sweeps, "valley") is None
    finally:
        lease.release()
    assert list(sweeps.journal.read("valley")) == before


def test_logs_of_ended_sweeps_go_on_request_but_those_of_the_best_and_of_failed_trials(tmp_path):
    sweeps = api.Sweeps.open(tmp_path)
    spec = make_spec(
        engine={"type": "simulate", "curve": "curves:torn"},
        parameters={"x": {"values": [1, 2, 3, 4]}},
        search="grid",
        trials={"max": 4},
        tracking={"send_to": []},
    )
    row = api.create(sweeps, spec, "mine")
    logs = sweeps.home.folder("mine", None) / "logs"
    state = api.drive(sweeps, row).state
    for trial in state.trials:
        log = log_file(logs.parent, trial, 1, 0)
        log.parent.mkdir(parents=True)
        log.write_text("hello")
        (log.parent / "mine.txt").touch()
    [failed] = [trial.id for trial in state.trials.values() if trial.state == "FAILED"]
    kept = {state.best, failed}
    assert gc.collect(sweeps).files == []
    freed = gc.collect(sweeps, logs=True).files
    assert {item.what for item in freed} == {"log"}
    assert {Path(item.path).parent.name for item in freed} == state.trials.keys() - kept
    assert {path.parent.name for path in logs.glob("*/1-0.log")} == kept
    assert len([*logs.glob("*/mine.txt")]) == 4


@pytest.fixture
def litter(hposvc, spec, tmp_path):
    """Run a sweep, and return a folder of no sweep beside it."""
    hposvc("run", spec(), "--id", "valley")
    folder = tmp_path / "home" / "sweeps" / "gone-1"
    claim(folder, f"{Sweeps.open(tmp_path / 'home').journal.store}")
    return folder


def test_a_dry_run_and_a_run_list_the_same(hposvc, litter):
    listed = hposvc("gc", "--dry-run", "-o", "json").data
    assert str(litter) in {item["path"] for item in listed}
    assert litter.exists()
    freed = hposvc("gc", "-o", "json").data
    assert [{**item, "freed": True} for item in listed] == freed
    assert {item["freed"] for item in listed} == {False}
    assert not litter.exists()


LOOKS = (("ls",), ("status", "valley"), ("best", "valley"), ("trials", "valley"))


def test_on_a_full_disk_one_can_look_and_make_room(hposvc, spec, tmp_path):
    with small(tmp_path / "home", 4 * 2**20) as disk:
        hposvc("run", spec(tracking={"send_to": []}), "--id", "valley")
        litter = disk / "sweeps" / "gone-1"
        claim(litter, f"{Sweeps.open(disk).journal.store}")
        fill(disk)
        assert [hposvc(*look).code for look in LOOKS] == [0] * len(LOOKS)
        for verb in (("extend", "valley", "--trials", "2"), ("run", spec())):
            answer = hposvc(*verb)
            assert (answer.code, answer.err[:9]) == (5, "no room: "), answer
            assert "hposvc gc" in answer.err
            assert str(disk) in answer.err
        assert hposvc("gc", "--dry-run").code == 0
        assert (disk / "hposvc.db-spare").exists()
        assert hposvc("gc").code == 0
        assert not litter.exists()
        assert hposvc("rm", "valley", "--yes").code == 0
        assert hposvc("ls", "-o", "json").data == []


def test_in_a_home_that_can_only_be_read_one_can_look(hposvc, spec, tmp_path):
    hposvc("run", spec(), "--id", "valley")
    with read_only(tmp_path / "home"):
        assert [hposvc(*look).code for look in LOOKS] == [0] * len(LOOKS)
        assert hposvc("gc", "--dry-run").code == 0
        for verb in (("rm", "valley", "--yes"), ("extend", "valley", "--trials", "2")):
            answer = hposvc(*verb)
            assert answer.code == 2
            assert "can't be written" in answer.err


ITEMS = [
    Garbage("checkpoint", "/home/a", 2 * 2**20, "no journal has it"),
    Garbage("folder", "/home/b", 2**20, "of no sweep"),
]


def test_the_sum_is_that_of_all_sizes_and_says_what_was_done():
    text = text_of(table(ITEMS, "freed"))
    assert "/home/a" in text
    assert "of no sweep" in text
    assert text.rstrip().splitlines()[-1].strip() == "3 MiB freed"
    assert "3 MiB to be freed" in text_of(table(ITEMS, "to be freed"))
