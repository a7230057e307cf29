"""The files around the code, held against the schemas of those who read them."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("citation-file-format", "CITATION.cff"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/bug.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/feature.yml"),
    ],
)
def test_a_file_is_valid_by_its_schema(schema, file):
    tool = Path(sys.executable).parent / "check-jsonschema"
    words = [tool, "--builtin-schema", f"vendor.{schema}", ROOT / file]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_license_is_the_same_everywhere():
    title = (ROOT / "LICENSE").read_text().split("\n", 2)[:2]
    assert [line.strip() for line in title] == ["Apache License", "Version 2.0, January 2004"]
    assert PROJECT["license"] == "Apache-2.0"
    assert "license: Apache-2.0\n" in (ROOT / "CITATION.cff").read_text()


def test_what_agents_read_is_the_same_here_and_in_the_wheel():
    assert (ROOT / "AGENTS.md").read_text() == (ROOT / "hposvc/mcp/AGENTS.md").read_text()


def test_scripts_of_others_come_with_their_licenses():
    site = ROOT / "hposvc" / "site"  # which has those of Sphinx, if it was built
    scripts = [file for file in (ROOT / "hposvc").rglob("*.min.js") if site not in file.parents]
    assert scripts
    licenses = {file for pattern in PROJECT["license-files"] for file in ROOT.glob(pattern)}
    for script in scripts:
        name = script.name.removesuffix(".min.js").lower()
        assert any(file.name.lower() == f"{name}.license" for file in licenses), script


def test_the_lowest_versions_are_the_bounds():
    extras = PROJECT["optional-dependencies"]
    texts = [*PROJECT["dependencies"], *extras["mlflow"], *extras["plots"], *extras["tune"]]
    bounds = {
        canonicalize_name(Requirement(text).name): re.search(r">=([\d.]+)", text)[1]
        for text in texts
    }
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    lowest = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert lowest.pop("torch")
    assert bounds.pop("torch")
    assert {canonicalize_name(name): version for name, version in lowest.items()} == bounds
