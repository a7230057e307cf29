"""If these fail, trials train on half a data set, or each of them downloads it."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from waiting import until

from trainables.data import checksum_of, prepared

FORK = multiprocessing.get_context("fork")
DEADLINE_S = 60


def fill(folder: Path) -> None:
    (folder / "part").mkdir()
    (folder / "part" / "a.txt").write_text("first")
    (folder / "b.txt").write_text("second")


def never(folder: Path) -> None:
    raise OSError("there is no network")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_there_is_not_built_again(tmp_path):
    folder = prepared(tmp_path / "deep" / "digits", fill)
    assert (folder / "part" / "a.txt").read_text() == "first"
    assert prepared(folder, never) == folder
    assert prepared(folder, never, checksum_of(folder)) == folder


def slowly(home: Path) -> None:
    def build(folder: Path) -> None:
        with (home / "builds").open("a") as file:
            file.write(f"{os.getpid()}\n")
        for number in range(300):
            (folder / f"{number}").write_text("x")

    assert len(names(prepared(home / "data", build))) == 300


def test_processes_that_come_at_once_build_once_and_all_wait(tmp_path):
    children = [FORK.Process(target=slowly, args=(tmp_path,)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(DEADLINE_S)
    assert [child.exitcode for child in children] == [0] * 4
    assert len((tmp_path / "builds").read_text().split()) == 1


def half(folder: Path) -> None:
    (folder / "half").write_text("x")
    raise OSError("the line is down")


def test_a_build_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match="the line is down"):
        prepared(tmp_path / "data", half)
    with pytest.raises(ValueError, match="left nothing in the folder that it was given"):
        prepared(tmp_path / "data", lambda folder: None)
    assert names(tmp_path) == [".data.lock"]
    assert names(prepared(tmp_path / "data", fill)) == ["b.txt", "part"]


def hang(home: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "half").write_text("x")
        (home / "begun").touch()
        signal.pause()

    prepared(home / "data", build)


def test_a_build_that_is_killed_leaves_no_folder_and_the_next_one_starts_anew(tmp_path):
    child = FORK.Process(target=hang, args=(tmp_path,))
    child.start()
    until((tmp_path / "begun").exists)
    child.kill()
    child.join(DEADLINE_S)
    assert not (tmp_path / "data").exists()
    assert names(prepared(tmp_path / "data", fill)) == ["b.txt", "part"]
    assert names(tmp_path) == [".data.lock", "begun", "data"]


def test_a_checksum_is_held_against_what_is_built_and_what_is_there(tmp_path):
    right = checksum_of(prepared(tmp_path / "one", fill))
    assert prepared(tmp_path / "two", fill, right) == tmp_path / "two"
    with pytest.raises(ValueError, match=f"has checksum {right}, not 0; what it reads has changed"):
        prepared(tmp_path / "three", fill, "0")
    assert not (tmp_path / "three").exists()
    for name in ("one", "two"):
        with pytest.raises(ValueError, match=f"{name} has checksum {right}, not 0; remove it"):
            prepared(tmp_path / name, never, "0")
