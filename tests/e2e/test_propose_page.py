"""docs/how-to/propose.md: its blocks work as they stand there, one after the other."""

import pages
import pytest


@pytest.mark.long
def test_the_blocks_run_one_after_the_other(python, tmp_path):
    printed = pages.play("how-to/propose.md", tmp_path, python, "valley.py", "valley.yaml")
    assert all(printed), printed
    *_, answer, asked = printed
    assert "'x': 0.35" in answer
    assert "'lr': 0.001" in asked
    trials = python("-m", "hposvc", "trials", "last", "-o", "json", cwd=tmp_path).stdout
    assert '"x": 0.4' in trials
    assert '"proposed": 1' in python("-m", "hposvc", "status", "last", "-o", "json").stdout
