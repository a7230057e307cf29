"""docs/optuna.md: its blocks run as they stand there, but their sweeps are not tracked."""

import re
from functools import partial
from pathlib import Path

import pytest

import hposvc

PAGE = (Path(__file__).parents[4] / "docs" / "optuna.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_the_page_runs(block, tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path / 'home'}")
    untracked = partial(hposvc.optuna.run, tracking={"send_to": []})
    monkeypatch.setattr(hposvc.optuna, "run", untracked)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "optuna.md", "exec"), {"__name__": "page"})
