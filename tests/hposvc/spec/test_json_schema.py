"""The JSON Schema of a spec, beside the specs that are accepted and refused."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft7Validator
from reference_page import spec_keys
from ruamel.yaml import YAML

from hposvc.drafts.draft import schema
from hposvc.spec.json_schema import find

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads(schema())
VALIDATOR = Draft7Validator(SCHEMA)
BAD = ROOT / "tests" / "specs" / "bad"
GOOD = sorted([*(ROOT / "tests" / "specs").glob("*.yaml"), *(ROOT / "examples").rglob("*.yaml")])
# What a schema of single keys can tell.
TOLD = ("no such key", "; give a whole number", "; give a mapping", "; give text")
MISSPELLED = sorted(
    {
        line.split(":")[0]
        for line in (BAD / "expected.txt").read_text(encoding="utf-8").splitlines()
        if any(text in line for text in TOLD)
    }
)


def read(path):
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def test_it_is_a_schema_by_the_standard():
    Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.name)
def test_it_accepts_what_is_accepted(path):
    data = read(path)
    if "parameters" not in data:  # a file that a spec names
        return
    assert [error.message for error in VALIDATOR.iter_errors(data)] == []


@pytest.mark.parametrize("name", MISSPELLED)
def test_it_marks_what_is_misspelled(name):
    assert not VALIDATOR.is_valid(read(BAD / name))


def test_every_key_has_a_type_and_words():
    for key in spec_keys():
        part = find(SCHEMA, key)
        assert part["description"], key
        assert {"type", "anyOf", "enum", "const", "$ref", "if"} & part.keys(), key


@pytest.mark.parametrize(
    ("declared", "is_valid"),
    [
        ({"shares": ["web", "code"]}, True),
        ({"shares": 6, "total": 64, "step": 1, "min": 2}, True),
        ({"shares": ["web", "code"], "min": {"web": 0.1}, "max": 0.9, "zeros": True}, True),
        ({"shares": ["web", "code"], "prior": {"web": 2, "code": 1}, "concentration": 5}, True),
        ({"shares": ["web", "code"], "prior": [2, 1], "when": {"size": [1, 2]}}, True),
        ({"mix": {"shares": ["web", "code"]}, "lr": {"min": 0.1, "max": 1}}, True),  # a group
        ({"shares": ["web"]}, False),
        ({"shares": 1}, False),
        ({"shares": "web"}, False),
        ({"shares": ["web", 2]}, False),
        ({"shares": ["web", "code"], "zeroes": True}, False),
        ({"shares": ["web", "code"], "zeros": "yes"}, False),
        ({"shares": ["web", "code"], "total": 0}, False),
        ({"shares": ["web", "code"], "min": -0.1}, False),
        ({"shares": ["web", "code"], "max": {"web": "much"}}, False),
        ({"shares": ["web", "code"], "prior": [1, 0]}, False),
        ({"shares": ["web", "code"], "values": [1, 2]}, False),
    ],
)
def test_it_knows_shares(declared, is_valid):
    spec = read(ROOT / "tests" / "specs" / "contract.yaml")
    assert VALIDATOR.is_valid({**spec, "parameters": {"mix": declared}}) == is_valid


@pytest.mark.parametrize(
    ("named", "is_valid"),
    [("lora", True), (["adamw", "lora"], True), ({"values": [1, 2]}, True), (["lorra"], False)],
)
def test_it_knows_presets(named, is_valid):
    spec = read(ROOT / "tests" / "specs" / "contract.yaml")
    assert VALIDATOR.is_valid({**spec, "parameters": {"preset": named}}) == is_valid


def test_it_accepts_shares_by_name_in_initial():
    spec = {**read(ROOT / "tests" / "specs" / "contract.yaml")}
    assert VALIDATOR.is_valid({**spec, "initial": [{"mix": {"web": 0.5}}, {"mix.web": 0.5}]})
    assert not VALIDATOR.is_valid({**spec, "initial": ["mix"]})
