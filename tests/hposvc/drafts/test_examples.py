"""The examples that come with the package: all are listed, and a copy is whole."""

import ast
import re
import tomllib
from itertools import groupby
from pathlib import Path

import pytest

from hposvc import spec as specs
from hposvc.drafts import examples
from hposvc.errors import SpecError

ROOT = Path(__file__).parents[3]
LINK = r"\[([^]]+)\]\(\.\./\.\./examples/([^)]+)\)"


def test_all_specs_programs_notebooks_and_folders_are_listed_with_what_they_show():
    listed = {example.name: example for example in examples.listed()}
    folder = ROOT / "examples"
    assert {name for name in listed if name.endswith((".yaml", ".ipynb"))} == {
        path.name for path in [*folder.glob("*.yaml"), *folder.glob("*/*.ipynb")]
    }
    assert {path.parent.name for path in folder.glob("*/*.yaml")} <= listed.keys()
    assert "quickstart.py" in listed
    assert "train_script.py" not in listed  # part of script.yaml
    assert "transformers_models.py" not in listed
    for name, example in listed.items():
        assert example.shows.endswith((".", "?", "0.6")), name
        assert "examples/" not in example.shows, name
        assert re.match("hours|about|half|a ", example.takes), name


def test_the_list_goes_by_task():
    listed = examples.listed()
    tasks = [task for task, _ in groupby(example.task for example in listed)]
    assert tasks == [task for task in examples.TASKS if task in tasks]
    assert next(each.task for each in listed if each.name == "ppo") == "Reinforcement learning"


def test_the_page_has_each_example_once_beside_its_task():
    page = (ROOT / "docs" / "how-to" / "examples.md").read_text()
    rows = re.findall(r"^\| (.+) \| (\[.+) \|$", page, re.MULTILINE)
    shown = [(task, name, path) for task, row in rows for name, path in re.findall(LINK, row)]
    assert shown == [
        (each.task, each.name, f"{each.file.relative_to(examples.folder())}")
        for each in examples.listed()
    ]


@pytest.mark.parametrize("name", [example.name for example in examples.listed()])
def test_a_copy_has_all_that_it_needs(tmp_path, name):
    written = examples.copy(name, tmp_path)
    first = {".ipynb": f"notebooks/{name}", "": f"{name}/sweep.yaml"}
    assert written[0] == tmp_path / first.get(Path(name).suffix, name)
    beside = {path.stem for path in (ROOT / "examples").rglob("*.py")}
    for path in written:
        if path.suffix == ".yaml":
            spec = specs.load(path)
            assert spec.name
            continue
        if path.suffix == ".ipynb":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            if module in beside:
                assert path.parent / f"{module}.py" in written, (path, module)


def test_a_folder_is_copied_whole(tmp_path):
    written = examples.copy("ppo", tmp_path)
    assert written == [tmp_path / "ppo" / "sweep.yaml", tmp_path / "ppo" / "train.py"]


def test_what_is_in_the_way_is_kept(tmp_path):
    (tmp_path / "train_script.py").write_text("mine")
    with pytest.raises(SpecError, match=r"train_script\.py exists and differs; remove it"):
        examples.copy("script", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["train_script.py"]
    assert (tmp_path / "train_script.py").read_text() == "mine"


def test_the_wheel_takes_all_files():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    data = project["tool"]["setuptools"]["data-files"]
    taken = {path for globs in data.values() for glob in globs for path in ROOT.glob(glob)}
    needed = {path.relative_to(examples.folder()) for e in examples.listed() for path in e.files()}
    assert {ROOT / "examples" / path for path in needed} <= taken
    for target, globs in data.items():
        for glob in globs:  # each in the same folder there
            assert Path(target).relative_to(examples.INSTALLED) == Path(glob).parent
    assert {*(ROOT / "docs").rglob("*.md")} <= taken
