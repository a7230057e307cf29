"""Refusals of `hposvc promote`; registration itself is tested with tracking/promotion."""

import pytest


@pytest.mark.parametrize("gate", ["-1", "nan", "inf"])
def test_a_gate_is_a_number_from_0_up(hposvc, gate):
    answer = hposvc("promote", "valley", "--model", "digits", f"--gate={gate}")
    assert answer.code == 2
    assert "--gate: is" in answer.err


def test_a_model_s_name_is_asked_for(hposvc):
    answer = hposvc("promote", "valley")
    assert answer.code == 2
    assert "--model" in answer.err


def test_a_sweep_that_is_not_there_exits_4(hposvc):
    assert hposvc("promote", "nobody", "--model", "digits").code == 4


def test_an_alias_that_mlflow_keeps_to_itself_is_refused(hposvc):
    answer = hposvc("promote", "valley", "--model", "digits", "--alias", "latest")
    assert answer.code == 2
    assert "MLflow keeps to itself" in answer.err
