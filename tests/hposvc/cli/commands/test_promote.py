"""Refusals of `hposvc promote`; registration itself is tested with tracking/promotion."""


def test_a_model_s_name_is_asked_for(hposvc):
    answer = hposvc("promote", "valley")
    assert answer.code == 2
    assert "--model" in answer.err


def test_an_alias_that_mlflow_keeps_to_itself_is_refused(hposvc):
    answer = hposvc("promote", "valley", "--model", "digits", "--alias", "latest")
    assert answer.code == 2
    assert "MLflow keeps to itself" in answer.err
