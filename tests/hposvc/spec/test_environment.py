"""The section `environment`: a spec names secrets and never holds them."""

import json
import re

import pytest

from hposvc import spec as specs
from hposvc.errors import SpecError
from hposvc.spec.user_code import import_and_check

SWEEP = {
    "trainable": "somewhere:train",
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"lr": {"min": 0.1, "max": 1.0}},
    "trials": {"max": 2},
}


def load(**environment):
    return specs.load({**SWEEP, "environment": environment})


def problem(**environment):
    with pytest.raises(SpecError) as error:
        load(**environment)
    return str(error.value)


def test_a_secret_written_into_the_spec_is_refused_and_not_repeated():
    message = problem(secrets=[{"HF_TOKEN": "hf_abcdefgh"}])
    assert "give {HF_TOKEN: file:PATH}" in message
    assert "hf_abcdefgh" not in message


def test_secrets_are_read_from_variables_and_files(tmp_path):
    (tmp_path / "db").write_text("postgres\n")
    environment = load(secrets=["HF_TOKEN", {"DB": f"file:{tmp_path / 'db'}"}]).environment
    assert environment.reveal({"HF_TOKEN": "hf"}) == {"HF_TOKEN": "hf", "DB": "postgres"}


def test_a_runtime_environment_is_rays_and_ray_checks_it(tmp_path):
    given = {"uv": ["einops"], "env_vars": {"A": "1"}, "image_uri": "x"}
    assert load(runtime_env=given).environment.runtime_env == given
    assert "pipp: no such key; did you mean 'pip'?" in problem(runtime_env={"pipp": []})
    assert "is 'torch'; give a mapping such as {pip: [einops]}" in problem(runtime_env="torch")
    both = {"working_dir": ".", "runtime_env": {"working_dir": "s3://code/x.zip"}}
    assert "working_dir: is given in runtime_env too; remove one" in problem(**both)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"pip": ["a"], "conda": "b"}, "runtime_env: The 'pip' field"),
        ({"env_vars": {"A": 1}}, "runtime_env.env_vars:"),
        ({"image_uri": "x", "pip": ["a"]}, "runtime_env: The 'image_uri' field"),
        ({"py_modules": 3}, "runtime_env.py_modules:"),
    ],
)
def test_what_ray_refuses_is_refused_before_anything_starts(given, place):
    with pytest.raises(SpecError, match=re.escape(f"environment.{place}")):
        import_and_check(load(runtime_env=given))


def test_a_runtime_environment_is_for_engines_on_ray():
    with pytest.raises(SpecError, match="is what Ray prepares on its nodes, and engine is local"):
        specs.load({**SWEEP, "engine": "local", "environment": {"runtime_env": {"pip": ["a"]}}})


def test_folders_of_a_runtime_environment_begin_at_the_spec(tmp_path):
    given = {"py_modules": ["lib", "gcs://a.zip"], "working_dir": "src"}
    (tmp_path / "s.yaml").write_text(json.dumps({**SWEEP, "environment": {"runtime_env": given}}))
    located = specs.load(tmp_path / "s.yaml").environment.runtime_env
    assert located["py_modules"] == [f"{tmp_path / 'lib'}", "gcs://a.zip"]
    assert located["working_dir"] == f"{tmp_path / 'src'}"


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"resources": {"market": "spot", "labels": {"ray.io/market-type": "spot"}}},
            "resources.labels.ray.io/market-type: is what resources.market says",
        ),
        (
            {"resources": {"market": "spot"}, "engine": "local"},
            "resources.market: is of nodes of a",
        ),
        ({"driver": {"cpus": 1}, "engine": "local"}, "driver: is a node of a Ray cluster"),
    ],
)
def test_nodes_of_a_cluster_are_for_engines_on_ray(sections, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        specs.load({**SWEEP, **sections})
