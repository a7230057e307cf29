"""Imports and programs come from the folder of a version, and installed packages stay."""

import os
import sys
from dataclasses import replace
from pathlib import Path

from trainables.order import Order
from trainables.runtime.assignment import Assignment, SlotConfig, carry_out
from trainables.runtime.variants import CodeVariants
from trainables.training import Training


def config(trainable):
    return SlotConfig(trainable, Training(), ("loss",), 1, 1, 0, Path())


def order(**params):
    return Order(1, "t0001", params, None, 1, 1, tree="tree")


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
    variants = CodeVariants("code", f"{tmp_path}", f"{live}")
    entered, given = variants.enter(f"{live}/train.py:f", order(code="main", x=1))
    assert entered == f"{tree}/train.py:f"
    assert given.params == {"x": 1}
    assert sys.path == [f"{tree}", f"{tree}/src", f"{live}/.venv/lib", "/elsewhere"]
    assert os.environ["PYTHONPATH"] == f"{tree}:{tree}:/elsewhere"
    assert Path.cwd() == tree
    assert variants.enter("module:f", order(code="main"))[0] == "module:f"


def test_an_order_without_its_code_ends_with_the_place_where_it_should_be(tmp_path):
    variants = CodeVariants("code", f"{tmp_path}", "")
    slot = replace(config("module:f"), variants=variants, folder=tmp_path)
    outcome = carry_out(slot, Assignment(order(code="main")), 0, None)
    assert outcome.kind == "user"
    assert f"the code of main, {tmp_path}/tree, is not on " in outcome.message
    assert outcome.leaks  # so the process is replaced
