"""The section `environment`: a spec names secrets and never holds them."""

import pytest

from hposvc import spec as specs
from hposvc.errors import SpecError

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


@pytest.mark.parametrize("name", ["RANK", "CUDA_VISIBLE_DEVICES", "RAY_ADDRESS", "MLFLOW_RUN_ID"])
def test_variables_that_ranks_set_themselves_are_refused(name):
    assert "set for each rank by Ray or by us" in problem(env={name: "1"})
    assert "set for each rank by Ray or by us" in problem(secrets=[name])


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"env": {"a-b": "1"}}, "env.a-b: 'a-b' is no name of a variable"),
        ({"env": {"A": True}}, "env.A: is true; give text or a number"),
        ({"secrets": ["HF", "HF"]}, r"secrets[1]: HF is there twice"),
        ({"secrets": ["A"], "env": {"A": "b"}}, "env.A: A is a secret too"),
    ],
)
def test_a_wrong_value_is_reported_with_its_place(environment, words):
    assert words in problem(**environment)


def test_a_secret_written_into_the_spec_is_refused_and_not_repeated():
    message = problem(secrets=[{"HF_TOKEN": "hf_abcdefgh"}])
    assert "give {HF_TOKEN: file:PATH}" in message
    assert "hf_abcdefgh" not in message


def test_secrets_are_read_from_variables_and_files(tmp_path):
    (tmp_path / "db").write_text("postgres\n")
    environment = load(secrets=["HF_TOKEN", {"DB": f"file:{tmp_path / 'db'}"}]).environment
    assert environment.reveal({"HF_TOKEN": "hf"}) == {"HF_TOKEN": "hf", "DB": "postgres"}
