"""Homes: their files, and finding a sweep by a part of its id."""

import os
from pathlib import Path

import pytest

from hposvc.errors import DamagedJournal, NotFound, StoreError, Unwritable
from hposvc.journal.home import Home, as_store_errors, find, sign
from hposvc.journal.journal import SweepRow


def test_a_home_is_given_or_in_the_environment_or_the_user_s(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Home.of(None, {}).path == tmp_path / ".hposvc"
    assert Home.of(None, {"HPOSVC_HOME": "~/mine"}).path == tmp_path / "mine"
    assert Home.of(Path("/there"), {"HPOSVC_HOME": "~/mine"}).path == Path("/there")
    monkeypatch.chdir(tmp_path)
    assert Home.of(Path("here"), {}).path == tmp_path / "here"


def test_databases_lie_in_the_home_unless_they_are_moved(tmp_path):
    home = Home.of(tmp_path, {})
    assert home.database == f"sqlite:///{tmp_path}/hposvc.db"
    assert home.tracking_uri == f"sqlite:///{tmp_path}/mlflow.db"
    moved = Home.of(tmp_path, {"HPOSVC_DB": "postgresql://db/x", "MLFLOW_TRACKING_URI": "http://m"})
    assert (moved.database, moved.tracking_uri) == ("postgresql://db/x", "http://m")


@pytest.fixture
def journal(tmp_path):
    journal = Home.of(tmp_path, {}).journal()
    for age, name in enumerate(["digits-ab12", "digits-ab34", "gpt-77", "gpt"]):
        journal.create(SweepRow(name, name, "p", float(age), {}, {}))
    return journal


def test_a_sweep_is_found_by_its_id_a_unique_prefix_or_as_the_last(journal):
    assert find(journal, "digits-ab34").id == "digits-ab34"
    assert find(journal, "digits-ab1").id == "digits-ab12"
    assert find(journal, "gpt").id == "gpt"  # the full id, although another id begins with it
    assert find(journal, "last").id == "gpt"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("digits", r"digits: 2 sweeps begin so \(digits-ab34, digits-ab12\)"),
        ("nothing", "nothing: no such sweep; the newest is gpt"),
        ("%", "%: no such sweep"),
        ("gpt-7_", "no such sweep"),
        ("", "the sweep's id is empty"),
    ],
)
def test_what_is_not_found_says_what_is_there(journal, name, message):
    with pytest.raises(NotFound, match=message):
        find(journal, name)


def test_a_new_home_is_for_nobody_else_to_read(tmp_path):
    path = tmp_path / "deep" / "home"
    before = os.umask(0)
    try:
        Home.of(path, {}).journal().store.close()
        assert path.stat().st_mode & 0o777 == 0o700
        (tmp_path / "older").mkdir(mode=0o755)
        Home.of(tmp_path / "older", {}).journal().store.close()
        assert (tmp_path / "older").stat().st_mode & 0o777 == 0o755  # left as its user has it
    finally:
        os.umask(before)


def test_a_home_that_is_no_folder_says_what_to_set(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "home", Path("/proc/home")):
        with pytest.raises(Unwritable, match="set HPOSVC_HOME to a folder that you can write"):
            Home.of(path, {}).journal()


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (FileNotFoundError(2, "No such file or directory", "/home/h/ray/keeper.lock"), True),
        (PermissionError(13, "Permission denied", "/storage/one/logs"), True),
        (OSError(28, "No space left on device"), True),
        (FileNotFoundError(2, "No such file or directory", "/elsewhere"), False),
        (OSError(24, "Too many open files"), False),
    ],
)
def test_errors_of_our_own_files_are_no_bugs(error, ours):
    def broken():
        with as_store_errors(Path("/home/h"), Path("/storage/one")):
            raise error

    with pytest.raises(StoreError if ours else OSError) as caught:
        broken()
    assert ("can be written and have room" in f"{caught.value}") is ours


@pytest.mark.parametrize("harm", ["empty", "gone"])
def test_no_new_journal_takes_the_folders_of_one_that_was_lost(tmp_path, harm):
    home = Home.of(tmp_path, {})
    journal = home.journal()
    for name in ("a", "b", "c", "d"):
        sign(home.folder(name, None), f"{journal.store}")
    journal.store.close()
    for part in tmp_path.glob("hposvc.db*"):
        part.unlink()
    if harm == "empty":
        (tmp_path / "hposvc.db").touch()
    with pytest.raises(DamagedJournal, match=rf"is {harm}, .*\(a, b, c, \.\.\.\); put back"):
        home.journal()
    (tmp_path / "sweeps").rename(tmp_path / "old")
    home.journal()


@pytest.mark.parametrize("harm", ["empty", "gone"])
def test_a_home_without_sweeps_of_the_journal_begins_anew(tmp_path, harm):
    home = Home.of(tmp_path, {})
    sign(home.folder("theirs", None), "sqlite:////elsewhere/hposvc.db")
    home.folder("unsigned", None).mkdir()
    if harm == "empty":
        (tmp_path / "hposvc.db").touch()
    home.journal()
