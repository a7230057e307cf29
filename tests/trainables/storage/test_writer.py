"""Scratch folders and durable folders of one rank."""

from trainables.storage.writer import CheckpointWriter


def writer(folder, rank=0, order=7):
    return CheckpointWriter(folder, None, "t0003", order, rank)


def filled(folder, text="weights"):
    (folder / "model.pt").write_text(text)
    return folder


def test_a_scratch_folder_is_moved_and_any_other_copied(tmp_path):
    one, own = writer(tmp_path / "s"), tmp_path / "own"
    own.mkdir()
    scratch = filled(one.scratch())
    saved = one.keep(3, 0, scratch)
    assert not scratch.exists()
    assert saved.path == f"{tmp_path / 's' / 't0003' / '7-3'}"
    copied = one.keep(4, 12, filled(own))
    assert own.exists()
    assert copied.path.endswith("t0003/7-4.12")
    assert (copied.step, copied.within) == (4, 12)


def test_what_is_shared_outlives_the_rank_that_made_it(tmp_path):
    one, other = writer(tmp_path), writer(tmp_path, rank=1)
    shared = one.share(filled(other.scratch()))
    other.close()
    assert (shared / "model.pt").read_text() == "weights"
    mine = one.scratch()
    assert one.share(mine) == mine
    assert one.share(tmp_path) == tmp_path
