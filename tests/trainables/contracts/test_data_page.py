"""docs/how-to/data.md as people copy it. If this fails, what they copied does not run."""

import pages

BLOCKS = pages.blocks("how-to/data.md")


def test_the_blocks_run_one_after_the_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    variables = {"__name__": "page"}
    for block in BLOCKS:
        exec(compile(block, "docs/how-to/data.md", "exec"), variables)
    share, text, packed = capsys.readouterr().out.splitlines()
    assert 0 < float(share) <= 1
    assert text == "44 5 34"
    assert packed == "[[5, 6, 7, 8], [9, 10, 11, 12]] [[0, 0, 0, 1], [1, 2, 2, 2]]"
    assert variables["folder"] == tmp_path / "cache" / "labels"
