"""Code as a parameter: what a spec makes of it, and what it refuses."""

import shutil

import code_repository
import pytest

from hposvc import spec as specs
from hposvc.errors import SpecError
from hposvc.spec.variants import freeze
from trainables import load


@pytest.fixture
def repository(tmp_path):
    return code_repository.make(tmp_path / "repository")


def refused(data):
    with pytest.raises(SpecError) as error:
        specs.load(data)
    return f"{error.value}"


def test_the_parameter_is_an_unordered_choice_and_short_names_stand_for_full_ones(repository):
    spec = specs.load(code_repository.spec(repository))
    names = [*spec.variants.trees]
    assert list(spec.space["code"].values) == names
    assert not spec.space["code"].ordered
    assert [point["code"] for point in spec.initial] == names


def test_a_frozen_spec_needs_the_repository_no_more(repository, tmp_path):
    spec = freeze(specs.load(code_repository.spec(repository)), tmp_path / "variants")
    code_repository.move_on(repository)
    assert specs.load(specs.dump(spec)) == specs.thaw(specs.dump(spec)) == spec
    again = freeze(spec, tmp_path / "elsewhere")
    assert again.variants.trees == spec.variants.trees
    for place in ("variants", "elsewhere"):
        levels = [
            (tmp_path / place / tree / "level.py").read_text()
            for tree in again.variants.trees.values()
        ]
        assert levels == ["LEVEL = 10\n", "LEVEL = 20\n", "LEVEL = 30\n"]


def test_what_a_spec_names_is_frozen_even_if_branches_move_on(repository, tmp_path):
    spec = specs.load(code_repository.spec(repository))
    code_repository.move_on(repository)
    trees = freeze(spec, tmp_path).variants.trees.values()
    levels = [(tmp_path / tree / "level.py").read_text() for tree in trees]
    assert levels == ["LEVEL = 10\n", "LEVEL = 20\n", "LEVEL = 30\n"]


def test_versions_that_are_gone_are_missed_by_name(repository, tmp_path):
    spec = freeze(specs.load(code_repository.spec(repository)), tmp_path / "variants")
    shutil.rmtree(tmp_path / "variants")
    with pytest.raises(SpecError, match=r"parameters.code.variants: can't be copied: .*variants"):
        freeze(spec, tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": "tune"}, "needs engine ray or local, and engine is tune"),
        ({"scheduler": "pbt"}, "would change within a trial; take a scheduler such as asha"),
        ({"training": {"trials_per_process": 2}}, "needs trials_per_process: 1"),
        ({"parameters": {"a": {"variants": "main"}}}, "is 'main'; give a list"),
        ({"parameters": {"a": {"variants": []}}}, "is an empty list; give a list"),
        ({"parameters": {"a": {"variants": [1]}}}, "is a list; give a list of texts"),
        ({"parameters": {"a": {"variants": {"main@1": "main"}}}}, "give a list of texts"),
        (
            {"parameters": {"a": {"variants": ["main"], "ordered": True}}},
            "parameters.a.ordered: is no key of a choice of code; leave it out",
        ),
        (
            {"parameters": {"a": {"variants": ["main"]}, "b": {"variants": ["main"]}}},
            "parameters.b.variants: chooses the code, and so does a",
        ),
    ],
)
def test_what_can_not_be_is_refused(repository, changes, message):
    data = code_repository.spec(repository, **changes)
    if "parameters" in changes:
        del data["initial"]
    assert message in refused(data)


def test_a_server_refuses_names_of_commits(repository, monkeypatch):
    data = code_repository.spec(repository)
    monkeypatch.setattr(load, "packages_allowed", frozenset({"hposvc"}))
    assert "are read where the repository is, not by a server" in refused(data)


def test_a_trainable_outside_the_frozen_folder_is_refused(repository):
    data = code_repository.spec(repository, trainable="toys:quadratic")
    with pytest.raises(SpecError, match=r"trainable: lies in .*toys.py, and code is frozen of"):
        specs.check(data)
