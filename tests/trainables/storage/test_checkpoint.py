from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.storage import checkpoint
from trainables.storage.checkpoint import CheckpointDamaged, Saved


def written(folder: Path, files: dict[str, bytes] | None = None) -> Path:
    for name, content in (files or {"model.bin": b"weights", "deep/er/state": b"momenta"}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    return checkpoint.store(written(tmp_path / "new"), tmp_path / "kept" / "t1" / "7-3", step=3)


def test_a_stored_folder_is_moved_whole(saved, tmp_path):
    folder = checkpoint.verify(saved)
    assert folder == tmp_path / "kept" / "t1" / "7-3"
    assert (folder / "deep/er/state").read_bytes() == b"momenta"
    assert not (tmp_path / "new").exists()


@settings(max_examples=20, deadline=None)
@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3), st.binary(max_size=50), min_size=1, max_size=4
    )
)
def test_any_files_come_back_as_they_were(tmp_path_factory, files):
    home = tmp_path_factory.mktemp("any")
    saved = checkpoint.store(written(home / "new", files), home / "t" / "1-1", step=1)
    folder = checkpoint.verify(saved)
    assert {name: (folder / name).read_bytes() for name in files} == files


def test_a_crash_before_the_rename_leaves_nothing_under_the_final_name(tmp_path):
    target = tmp_path / "kept" / "t1" / "7-3"
    checkpoint.write_manifest(written(tmp_path / "new"), target, step=3)
    assert not target.exists()


def test_a_folder_that_was_sealed_before_a_crash_can_be_stored_afterwards(tmp_path):
    target = tmp_path / "kept" / "t1" / "7-3"
    sealed = checkpoint.write_manifest(written(tmp_path / "new"), target, step=3)
    assert checkpoint.store(tmp_path / "new", target, step=3) == sealed


def test_a_checkpoint_is_never_written_over(saved, tmp_path):
    with pytest.raises(FileExistsError, match="a checkpoint never changes"):
        checkpoint.store(written(tmp_path / "again"), Path(saved.path), step=3)
    assert checkpoint.verify(saved)


@pytest.mark.parametrize("name", ["model.bin", "deep/er/state", "manifest.json"])
def test_one_flipped_byte_is_found_and_named(saved, name):
    file = Path(saved.path) / name
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckpointDamaged, match=r"expected SHA-256 .*, found SHA-256") as caught:
        checkpoint.verify(saved)
    assert caught.value.file == str(file)


def test_a_lost_file_is_found_and_named(saved):
    (Path(saved.path) / "model.bin").unlink()
    with pytest.raises(CheckpointDamaged, match=r"model\.bin: .* found no such file"):
        checkpoint.verify(saved)


def test_removing_again_finishes_what_a_killed_process_began(saved):
    folder = Path(saved.path)
    folder.rename(folder.with_name(f".removed-{folder.name}"))
    checkpoint.remove(saved)
    assert list(folder.parent.iterdir()) == []


def test_a_folder_that_was_moved_keeps_its_checkpoints(saved, tmp_path):
    """A folder reached by another path than when its checkpoints were saved lost them all."""
    moved = (tmp_path / "kept").rename(tmp_path / "elsewhere")
    written(moved / "t1" / "7-4")
    checkpoint.keep_only(moved, {saved.path})
    assert [folder.name for folder in moved.glob("*/*")] == ["7-3"]
