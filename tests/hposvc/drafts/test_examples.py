"""The examples that come with the package: all are listed, and a copy is whole."""

import ast
import tomllib
from pathlib import Path

import pytest

from hposvc import spec as specs
from hposvc.drafts import examples
from hposvc.errors import SpecError

ROOT = Path(__file__).parents[3]


def test_all_specs_and_programs_are_listed_with_what_they_show():
    listed = {example.name: example.shows for example in examples.listed()}
    assert [name for name in listed if name.endswith(".yaml")] == sorted(
        path.name for path in (ROOT / "examples").glob("*.yaml")
    )
    assert "quickstart.py" in listed
    assert "train_script.py" not in listed  # part of script.yaml
    assert "transformers_models.py" not in listed
    for name, shows in listed.items():
        assert shows.endswith((".", "?", "0.6")), name
        assert "examples/" not in shows, name


@pytest.mark.parametrize("name", [example.name for example in examples.listed()])
def test_a_copy_has_all_that_it_needs(tmp_path, name):
    written = examples.copy(name, tmp_path)
    assert written[0] == tmp_path / name
    beside = {path.stem for path in (ROOT / "examples").rglob("*.py")}
    for path in written:
        if path.suffix == ".yaml":
            spec = specs.load(path)
            assert spec.name
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            if module in beside:
                assert path.parent / f"{module}.py" in written, (path, module)


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
