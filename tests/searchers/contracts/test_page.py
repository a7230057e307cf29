"""The examples in docs/how-to/searchers.md run as they stand there."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from searchers import METHODS, Float, Space, create
from searchers.methods import load_method, takes_several

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "searchers.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(PLUG_IN,) = (block for block in BLOCKS if block.startswith('"""my_search.py'))
(SEVERAL,) = (block for block in BLOCKS if "goal=[" in block)


@pytest.fixture
def wander(tmp_path, monkeypatch):
    """The page's searcher, as a user writes it: a file beside the spec."""
    (tmp_path / "my_search.py").write_text(PLUG_IN)
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_search:Wander"
    sys.modules.pop("my_search", None)  # a bad spec of the tests names a module that does not exist


def test_the_searcher_of_the_page_is_shorter_than_thirty_lines_and_searches(wander):
    assert len(PLUG_IN.splitlines()) < 30

    def best(method):
        values = []
        for seed in range(5):
            space = Space({f"x{i}": Float(0.1, 1.0) for i in range(4)})
            searcher = create(method, space, seed=seed)
            for _ in range(60):
                trial = searcher.ask()
                searcher.tell(trial, sum((x - 0.4) ** 2 for x in trial.params.values()))
            assert len({space.key(seen.params) for seen in searcher.history}) == 60
            values.append(searcher.best.value)
        return np.median(values)

    assert best(wander) < best("random")


def test_its_options_are_its_fields(wander, digits):
    assert create(wander, digits, restart=1.0).ask().note == {"anew": True}
    with pytest.raises(ValueError, match="has no option 'restarts': did you mean 'restart'"):
        create(wander, digits, restarts=0.5)
    with pytest.raises(ValueError, match="takes one objective"):
        create(wander, digits, goal=["minimize", "minimize"])


def test_the_example_of_several_metrics_prints_a_front(capsys):
    exec(compile(SEVERAL, "docs/how-to/searchers.md", "exec"), {})
    *front, volume = capsys.readouterr().out.splitlines()
    assert len(front) > 2
    assert 0 < float(volume) < 2


def test_the_table_says_what_each_method_can():
    """Whoever picks a method by the page must not be refused."""
    rows = dict(re.findall(r"^\| (`[^|]*`) \| (.*) \|$", PAGE, re.MULTILINE))
    cells = {name: row for names, row in rows.items() for name in re.findall(r"`(\w+)`", names)}
    assert cells.keys() == METHODS.keys()
    for name, row in cells.items():
        learns, several = (cell.strip() for cell in row.split("|")[:2])
        assert (learns == "yes") == load_method(name).uses_results
        assert (several == "yes") == takes_several(load_method(name))
