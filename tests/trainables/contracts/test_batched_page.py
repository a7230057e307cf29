"""docs/advanced/batched.md as people copy it. If this fails, what they copied does not run."""

import pages
from ruamel.yaml import YAML

from hposvc import spec as specs


def test_its_trials_train_at_once(capsys):
    [block] = pages.blocks("advanced/batched.md")
    exec(compile(block, "docs/advanced/batched.md", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out == "2 None\n" * 4


def test_its_sweep_is_valid():
    [block] = pages.blocks("advanced/batched.md", "yaml")
    assert specs.load(YAML(typ="safe").load(block)).training.trials_per_process == 32
