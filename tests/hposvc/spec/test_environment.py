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


def test_a_secret_written_into_the_spec_is_refused_and_not_repeated():
    message = problem(secrets=[{"HF_TOKEN": "hf_abcdefgh"}])
    assert "give {HF_TOKEN: file:PATH}" in message
    assert "hf_abcdefgh" not in message


def test_secrets_are_read_from_variables_and_files(tmp_path):
    (tmp_path / "db").write_text("postgres\n")
    environment = load(secrets=["HF_TOKEN", {"DB": f"file:{tmp_path / 'db'}"}]).environment
    assert environment.reveal({"HF_TOKEN": "hf"}) == {"HF_TOKEN": "hf", "DB": "postgres"}
