"""Copies of a program's checkpoint folder. If these fail, a step has another step's weights."""

import time
from pathlib import Path

import pytest

from trainables.programs.snapshots import CannotCopy, Snapshots


class Keeper:
    """A worker that keeps the checkpoints of even steps."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0

    def takes(self, step):
        return step % 2 == 0

    def scratch(self):
        self.count += 1
        folder = self.folder / f"scratch-{self.count}"
        folder.mkdir()
        return folder


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    return folder


def test_a_copy_is_made_of_what_is_new_and_kept(place, tmp_path):
    snapshots = Snapshots(place, Keeper(tmp_path))
    assert snapshots.take(2) is None, "the folder is empty"
    (place / "weights").write_text("one")
    assert snapshots.take(3) is None, "nobody keeps it"
    copy = snapshots.take(4)
    assert (copy / "weights").read_text() == "one"
    assert not snapshots.due(6)
    (place / "weights").write_text("two!")
    assert (snapshots.take(6) / "weights").read_text() == "two!"
    assert (copy / "weights").read_text() == "one"


def test_what_was_written_after_the_step_s_end_is_the_next_step_s(place, tmp_path):
    snapshots = Snapshots(place, Keeper(tmp_path))
    (place / "weights").write_text("one")
    assert snapshots.take(2, seen_ns=1) is None
    assert snapshots.take(2, seen_ns=time.time_ns() + 10**10) is not None


def test_a_file_that_can_not_be_copied_is_named(place, tmp_path):
    class Full(Keeper):
        def scratch(self):
            raise OSError(28, "No space left on device")

    (place / "weights").write_text("one")
    with pytest.raises(CannotCopy, match=r"step 2, in HPOSVC_CHECKPOINT_DIR, .* No space left"):
        Snapshots(Path(place), Full(tmp_path)).take(2)
