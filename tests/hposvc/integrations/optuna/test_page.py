"""docs/optuna.md: its blocks run as they stand there."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[4] / "docs" / "optuna.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_the_page_runs(block, tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path / 'home'}")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "optuna.md", "exec"), {"__name__": "page"})
