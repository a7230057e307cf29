"""docs/how-to/optuna.md: its blocks run as they stand there, but their sweeps are not tracked."""

from functools import partial

import pages
import pytest

import hposvc

BLOCKS = pages.blocks("how-to/optuna.md")


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_the_page_runs(block, tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path / 'home'}")
    untracked = partial(hposvc.optuna.run, tracking={"send_to": []})
    monkeypatch.setattr(hposvc.optuna, "run", untracked)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "how-to/optuna.md", "exec"), {"__name__": "page"})
