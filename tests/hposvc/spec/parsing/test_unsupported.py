"""Planned features are refused with a clear message."""

from hposvc.spec.parsing.unsupported import planned_feature_problems


def test_a_value_that_is_planned_is_no_unknown_one():
    data = {"queue": {}, "resources": {"workers": 2, "gpus_per_worker": "auto"}}
    assert [str(problem) for problem in planned_feature_problems(data)] == [
        "resources.gpus_per_worker: auto is not there yet (it comes with a later release); "
        "give a number",
    ]
