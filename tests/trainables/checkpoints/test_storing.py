"""Snapshots on disk, without ranks; shards are tested in ../contracts."""

from pathlib import Path
from pickle import UnpicklingError

import pytest
import torch

from trainables.checkpoints.snapshot import CheckpointSnapshot
from trainables.checkpoints.storing import FILE, read, write


class Own:
    """An object of a class that a reader does not allow."""


def test_values_stay_in_use_when_the_file_is_gone(tmp_path):
    write(CheckpointSnapshot({}, {"buffer": torch.ones(4)}), tmp_path)
    source = read(tmp_path)
    (tmp_path / FILE).unlink()
    assert source.values["buffer"].sum() == 4


def test_a_folder_of_something_else_is_refused(tmp_path):
    with pytest.raises(ValueError, match="only what a Task saved can be read"):
        read(tmp_path)


def test_an_object_that_could_not_be_read_again_is_refused_before_it_is_written(tmp_path):
    with pytest.raises(ValueError, match="no checkpoint can give back"):
        write(CheckpointSnapshot({}, {"own": Own()}), tmp_path)
    assert not (tmp_path / FILE).exists()


class Hostile:
    """An object whose pickle runs code when it is read."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def test_a_checkpoint_that_would_run_code_is_refused_before_it_does(tmp_path):
    mark = tmp_path / "ran"
    torch.save({"tensors": {}, "values": {"x": Hostile(mark)}}, tmp_path / FILE)
    with pytest.raises(UnpicklingError):
        read(tmp_path)
    assert not mark.exists()
    torch.load(tmp_path / FILE, weights_only=False)
    assert mark.exists()
