"""Files of a run in a folder of this machine: much of it costs little."""

import itertools
import stat
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from hposvc.errors import NotFound, StoreError
from hposvc.journal.home import Home
from hposvc.tracking import run_files
from hposvc.tracking.run_files import FilesInFolder, TooLarge, list_files, open_files, read_file


@pytest.fixture
def files(tmp_path):
    (tmp_path / "run").mkdir()
    return FilesInFolder(tmp_path, "run")


class Endless:
    """A folder whose files have no end."""

    def __enter__(self):
        status = SimpleNamespace(st_mode=stat.S_IFREG, st_size=1)
        return (
            SimpleNamespace(name=f"{number:06}", stat=lambda follow_symlinks: status)
            for number in itertools.count()
        )

    def __exit__(self, *given):
        """Close nothing."""


def test_of_a_folder_with_a_million_files_few_are_looked_at(files, monkeypatch):
    monkeypatch.setattr(run_files.os, "scandir", lambda folder: Endless())
    found = list_files(files)
    assert not found.is_whole
    assert len(found.files) == run_files.MOST_FILES


def test_deep_and_wide_folders_are_listed_in_part(files, tmp_path):
    for number in range(run_files.MOST_FOLDERS + 5):
        (tmp_path / "run" / f"{number:02}").mkdir()
    assert not list_files(files).is_whole
    deep = FilesInFolder(tmp_path, "run/00")
    (tmp_path / "run" / "00" / "inner").mkdir()
    (tmp_path / "run" / "00" / "inner" / "a").write_text("x")
    assert [file.path for file in list_files(deep).files] == ["inner/a"]
    assert list_files(deep).is_whole


@pytest.mark.parametrize("end", ["?", "#", "?x=", "#x", "?#"])
def test_no_address_swallows_the_path_that_is_asked(tmp_path, end):
    with pytest.raises(StoreError, match="a query or a fragment"):
        open_files(Home(tmp_path, "", ""), f"http://127.0.0.1:1/secret{end}", "r1")


def test_a_file_is_read_whole_or_not_at_all(files, tmp_path):
    (tmp_path / "run" / "a").write_text("hello")
    assert read_file(files, "a", 5) == b"hello"
    with pytest.raises(TooLarge):
        files.open("a", 4)
    for path in ("b", "a/b", ".", "..", "../run/a", "/etc/passwd", "", "n" * 300, "a\0", "\ud800"):
        with pytest.raises(NotFound):
            files.open(path, 5)


def test_no_descriptor_is_left_open(files, tmp_path):
    (tmp_path / "run" / "inner").mkdir()
    (tmp_path / "run" / "link").symlink_to(tmp_path)
    assert open_under(tmp_path) == []
    with (tmp_path / "run" / "a").open("w"):
        assert open_under(tmp_path) == [tmp_path / "run" / "a"]
    list_files(files)
    for path in ("inner", "link/a", "inner/a"):
        with pytest.raises(NotFound):
            files.open(path, 5)
    assert open_under(tmp_path) == []


def open_under(folder):
    """What this process has open in `folder`; other tests' descriptors come and go meanwhile."""
    found = []
    for descriptor in Path("/dev/fd").iterdir():
        with suppress(OSError):  # as the listing's own, closed since
            found.append(descriptor.readlink())
    return [path for path in found if path.is_relative_to(folder)]
