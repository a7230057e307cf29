"""`hposvc gc`, as its user sees it; what is garbage is tested with operations/garbage."""

import pytest
from small_disk import fill, read_only, small

from hposvc.api import Sweeps
from hposvc.journal.home import claim


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
