"""A variant's files are unpacked once, and paths of the live folder become paths among them."""

import os
import sys
import tarfile
from pathlib import Path

import pytest

from trainables.load import LoadError
from trainables.runtime.variants import CodeVariants, unpack


@pytest.fixture
def archive(tmp_path):
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "run").write_text("#!/bin/sh\n")
    (tmp_path / "live" / "run").chmod(0o755)
    with tarfile.open(tmp_path / "tree.tar", "w") as files:
        files.add(tmp_path / "live", "")
    return tmp_path / "tree.tar"


def test_a_tree_is_unpacked_once(archive):
    tree = unpack(archive)
    assert os.access(tree / "run", os.X_OK)
    (tree / "result.txt").touch()
    assert unpack(archive) == tree
    assert (tree / "result.txt").exists()
    assert sorted(path.name for path in archive.parent.iterdir()) == ["live", "tree", "tree.tar"]


def test_an_archive_that_is_gone_is_refused(archive):
    archive.unlink()
    with pytest.raises(LoadError, match="is gone"):
        unpack(archive)


def test_imports_and_programs_come_from_the_tree_and_installed_packages_stay(
    archive, tmp_path, monkeypatch
):
    live, tree = tmp_path / "live", tmp_path / "tree"
    monkeypatch.chdir(live)
    monkeypatch.setattr(sys, "prefix", f"{live}/.venv")
    monkeypatch.setattr(sys, "path", [f"{live}/src", f"{live}/.venv/lib", "/elsewhere"])
    monkeypatch.setenv("PYTHONPATH", f"{live}:/elsewhere")
    move = CodeVariants("code", {"main": "tree"}, f"{tmp_path}", f"{live}").enter("main")
    assert sys.path == [f"{tree}", f"{tree}/src", f"{live}/.venv/lib", "/elsewhere"]
    assert os.environ["PYTHONPATH"] == f"{tree}:{tree}:/elsewhere"
    assert Path.cwd() == tree
    assert move(f"{live}/train.py:f") == f"{tree}/train.py:f"
    assert move("module:f") == "module:f"
