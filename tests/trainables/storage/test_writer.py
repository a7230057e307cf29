"""Scratch folders and durable folders of one rank."""

from trainables.storage.writer import CheckpointWriter


def writer(folder, rank=0, order=7):
    return CheckpointWriter(folder, None, "t0003", order, rank)


def filled(folder, text="weights"):
    (folder / "model.pt").write_text(text)
    return folder


def test_what_is_shared_outlives_the_rank_that_made_it(tmp_path):
    one, other = writer(tmp_path), writer(tmp_path, rank=1)
    shared = one.keep_files(filled(other.scratch()))
    other.close()
    assert (shared / "model.pt").read_text() == "weights"
    mine = one.scratch()
    assert one.keep_files(mine) == mine
    assert one.keep_files(tmp_path) == tmp_path
