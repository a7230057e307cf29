"""docs/vizier.md: its blocks run as they stand there, and its table is that of the code."""

import re
from pathlib import Path

from hposvc.integrations.vizier.problem import ALGORITHMS

PAGE = (Path(__file__).parents[4] / "docs" / "vizier.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_blocks_of_the_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path / 'home'}")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for block in BLOCKS:
        exec(compile(block, "vizier.md", "exec"), names)
    best, count, value = capsys.readouterr().out.splitlines()
    assert "'layers': 1" in best
    assert count == "20"
    assert 0.01 <= float(value) < 0.011


def test_the_table_of_algorithms_is_that_of_the_code():
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|$", PAGE, re.MULTILINE)
    assert dict(rows) == ALGORITHMS
