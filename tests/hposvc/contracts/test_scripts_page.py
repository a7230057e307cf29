"""docs/how-to/scripts.md: each script runs in a sweep by the spec beside it."""

import re
import shlex
from pathlib import Path

import pytest
from command_line import run
from ruamel.yaml import YAML

import hposvc
from trainables.programs.arguments import PARAMETER_LISTS, render

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "scripts.md").read_text()
SECTIONS = re.findall(
    r"^## (\w+)[^\n]*\n(?:(?!^## ).)*?^```python\n(.*?)^```\n\n```yaml\n(.*?)^```$",
    PAGE,
    re.MULTILINE | re.DOTALL,
)
LIBRARIES = ["argparse", "click", "absl", "tyro", "Hydra", "accelerate", "torchrun"]
OF_SEVERAL_RANKS = ["accelerate", "torchrun"]


def test_every_library_has_a_script_and_a_spec():
    assert [library for library, _, _ in SECTIONS] == LIBRARIES


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("script", "spec"), [parts for _, *parts in SECTIONS], ids=LIBRARIES)
def test_a_script_of_the_page_is_swept(tmp_path, monkeypatch, capfd, script, spec):
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HPOSVC_DB", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(script)
    changes = {"trials": {"max": 2}, "engine": "local", "resources": {"workers": 1}}
    write_spec(tmp_path, spec, changes)
    ended = run(capfd, "run", "sweep.yaml", "-o", "json")
    assert ended.code == 0, ended.err
    status = ended.data
    assert status["trials"]["failed"] == 0, ended.err
    assert status["trials"]["total"] == 2
    assert status["best"]["value"] < 25.0  # what the first step starts from


@pytest.mark.ray
@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("library", OF_SEVERAL_RANKS)
def test_two_ranks_go_on_from_their_checkpoint(tmp_path, monkeypatch, home_with_ray, library):
    monkeypatch.setenv("HPOSVC_HOME", str(home_with_ray))
    monkeypatch.delenv("HPOSVC_DB", raising=False)
    monkeypatch.chdir(tmp_path)
    script, spec = {name: parts for name, *parts in SECTIONS}[library]
    starts = tmp_path / "starts"  # of each rank, with what it goes on from
    counting = f"""
import os
with open({str(starts)!r}, "a") as file:
    print(os.environ["WORLD_SIZE"], "HPOSVC_RESTORE_DIR" in os.environ, file=file)
"""
    (tmp_path / "train.py").write_text(counting + script)
    write_spec(tmp_path, spec, {"trials": {"max": 3}})
    result = hposvc.Sweep.load("sweep.yaml").run(progress=False)
    trials = result.trials
    assert {*trials["state"]} == {"COMPLETED", "STOPPED"}
    longest = trials[trials["state"] == "COMPLETED"].iloc[0]
    assert longest["attempts"] == 2
    curve = result.curves[result.curves["trial"] == longest["trial"]].sort_values("step")
    assert [*curve["step"]] == [1, 2, 3]
    assert curve["loss"].iloc[2] < curve["loss"].iloc[0]
    assert sorted(starts.read_text().splitlines()) == 6 * ["2 False"] + 2 * ["2 True"]


def write_spec(folder, spec, changes):
    """Write a spec of the page as sweep.yaml, with changes to it and without MLflow."""
    changed = {**YAML(typ="safe").load(spec), **changes, "tracking": {"send_to": []}}
    with (folder / "sweep.yaml").open("w") as file:
        YAML(typ="safe").dump(changed, file)


def test_what_the_table_says_is_what_a_script_gets():
    values = {
        "lr": 0.1,
        "optimizer.lr": 0.1,
        "config.lr": 0.1,
        "ema": True,
        "use_ema": False,
        "optimizer.use_ema": False,
    }
    rows = re.findall(r"^\| [^|]+ \| `(\$\{args\w*\})` \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert {item[2:-1] for item, _ in rows} <= PARAMETER_LISTS.keys()
    assert len(rows) == 8
    for item, cell in rows:
        words = [word for code in re.findall(r"`([^`]+)`", cell) for word in shlex.split(code)]
        possible = {
            *render([item], values, {}),
            *render([item], {**values, "use_ema": True}, {}),
        }
        assert set(words) <= possible, item
