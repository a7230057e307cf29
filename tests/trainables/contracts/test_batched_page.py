"""docs/batched.md as people copy it. If this fails, what they copied does not run."""

import re
from pathlib import Path

from ruamel.yaml import YAML

from hposvc import spec as specs

PAGE = (Path(__file__).parents[3] / "docs" / "batched.md").read_text()
BLOCKS = {
    language: re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for language in ("python", "yaml")
}


def test_its_trials_train_at_once(capsys):
    [block] = BLOCKS["python"]
    exec(compile(block, "docs/batched.md", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out == "2 None\n" * 4


def test_its_sweep_is_valid():
    [block] = BLOCKS["yaml"]
    assert specs.load(YAML(typ="safe").load(block)).training.trials_per_process == 32
