"""docs/how-to/cost.md: its commands work as they stand there, one after the other."""

import re
from pathlib import Path

import pages
import pytest

from trainables.memory_estimation.gpus import MEMORY_MIB

pytestmark = [pytest.mark.ray, pytest.mark.full]

ROOT = Path(__file__).parents[2]
PAGE = pages.read("how-to/cost.md")


@pytest.mark.timeout(1500)
def test_the_blocks_run_one_after_the_other(python, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    printed = pages.play("how-to/cost.md", tmp_path, python, "widths.yaml")
    assert all(printed), printed
    assert (tmp_path / "law.svg").exists()


def test_it_names_every_gpu():
    names = {
        name
        for line in PAGE.splitlines()
        if line.startswith(("| NVIDIA", "| AMD"))
        for name in re.findall(r"`([^`]+)`", line)
    }
    assert names == MEMORY_MIB.keys()
