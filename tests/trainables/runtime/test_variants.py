"""Imports and programs come from the folder of a version, and installed packages stay."""

import os
import sys
from pathlib import Path

import pytest

from trainables.load import LoadError
from trainables.runtime.variants import CodeVariants


def test_imports_and_programs_come_from_the_folder_and_installed_packages_stay(
    tmp_path, monkeypatch
):
    live, tree = tmp_path / "live", tmp_path / "tree"
    live.mkdir()
    tree.mkdir()
    monkeypatch.chdir(live)
    monkeypatch.setattr(sys, "prefix", f"{live}/.venv")
    monkeypatch.setattr(sys, "path", [f"{live}/src", f"{live}/.venv/lib", "/elsewhere"])
    monkeypatch.setenv("PYTHONPATH", f"{live}:/elsewhere")
    variants = CodeVariants("code", {"main": f"{tree}"}, f"{live}")
    assert variants.enter("main", f"{live}/train.py:f") == f"{tree}/train.py:f"
    assert sys.path == [f"{tree}", f"{tree}/src", f"{live}/.venv/lib", "/elsewhere"]
    assert os.environ["PYTHONPATH"] == f"{tree}:{tree}:/elsewhere"
    assert Path.cwd() == tree
    assert variants.enter("main", "module:f") == "module:f"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(LoadError, match=f"the code of main, {tmp_path}/tree, is not on "):
        CodeVariants("code", {"main": f"{tmp_path}/tree"}, "").enter("main", "module:f")
