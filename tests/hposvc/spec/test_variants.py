"""Code as a parameter: what a spec makes of it, and what it refuses."""

import shutil

import code_repository
import pytest

from hposvc import spec as specs
from hposvc.errors import SpecError
from hposvc.spec.variants import TRAVELLED, for_ranks, freeze
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


def levels(spec, place):
    return [(place / tree / "level.py").read_text() for tree in spec.variants.trees.values()]


LEVELS = ["LEVEL = 10\n", "LEVEL = 20\n", "LEVEL = 30\n"]


def test_what_a_spec_names_is_frozen_even_if_branches_move_on(repository, tmp_path):
    spec = specs.load(code_repository.spec(repository))
    code_repository.move_on(repository)
    assert specs.load(specs.dump(spec)) == specs.thaw(specs.dump(spec)) == spec
    freeze(spec, tmp_path)
    assert levels(spec, tmp_path) == LEVELS


def test_what_a_repository_has_no_more_comes_from_earlier_sweeps(repository, tmp_path):
    spec = specs.load(code_repository.spec(repository))
    freeze(spec, tmp_path / "one")
    shutil.rmtree(repository / ".git")
    with pytest.raises(SpecError, match="not a git repository"):
        freeze(spec, tmp_path / "other", [tmp_path / "none"])
    freeze(spec, tmp_path / "other", [tmp_path / "none", tmp_path / "one"])
    assert levels(spec, tmp_path / "other") == LEVELS


def test_a_server_runs_no_git(repository, tmp_path, monkeypatch):
    spec = specs.load(code_repository.spec(repository))
    monkeypatch.setattr(load, "packages_allowed", frozenset({"hposvc"}))
    with pytest.raises(SpecError, match=r"parameters.code.variants: are not on this server"):
        freeze(spec, tmp_path)


def test_files_that_travelled_stay_where_they_are(repository, tmp_path):
    spec = specs.load(code_repository.spec(repository))
    (repository / TRAVELLED).mkdir()
    freeze(spec, tmp_path / "own")
    assert not (tmp_path / "own").exists()
    assert for_ranks(spec, tmp_path / "own").place == f"{repository / TRAVELLED}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": "tune"}, "needs engine ray or local, and engine is tune"),
        ({"scheduler": "pbt"}, "would change within a trial; take a scheduler such as asha"),
        ({"training": {"trials_per_process": 2}}, "needs one trial in a process"),
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
