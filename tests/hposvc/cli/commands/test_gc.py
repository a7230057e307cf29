"""`hposvc gc`, as its user sees it; what is garbage is tested with operations/garbage."""

import pytest

from hposvc.api import Sweeps
from hposvc.journal.home import claim


@pytest.fixture
def litter(hposvc, spec, tmp_path):
    """Run a sweep, and return a folder of no sweep beside it."""
    hposvc("run", spec(), "--id", "valley")
    folder = tmp_path / "home" / "sweeps" / "gone-1"
    claim(folder, f"{Sweeps.open(tmp_path / 'home').journal.store}")
    return folder


def test_a_home_without_garbage_says_so(hposvc):
    answer = hposvc("gc")
    assert (answer.code, answer.out.strip()) == (0, "nothing to free")
    assert hposvc("gc", "-o", "json").data == []


def test_a_dry_run_and_a_run_list_the_same(hposvc, litter):
    listed = hposvc("gc", "--dry-run", "-o", "json").data
    assert str(litter) in {item["path"] for item in listed}
    assert litter.exists()
    freed = hposvc("gc", "-o", "json").data
    assert [{**item, "freed": True} for item in listed] == freed
    assert {item["freed"] for item in listed} == {False}
    assert not litter.exists()


def test_a_journal_is_compressed_where_that_is_asked_for(hposvc, litter):
    before = hposvc("trials", "valley", "-o", "json").data
    [journal] = [i for i in hposvc("gc", "--compact", "-o", "json").data if i["what"] == "journal"]
    assert (journal["path"], journal["freed"]) == ("valley", True)
    assert hposvc("trials", "valley", "-o", "json").data == before


def test_a_sweep_that_is_not_there_exits_4(hposvc):
    assert hposvc("gc", "nobody").code == 4
