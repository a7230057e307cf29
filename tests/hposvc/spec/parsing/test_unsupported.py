"""Planned features are refused with a clear message."""

from hposvc.spec.parsing.unsupported import planned_feature_problems


def test_a_key_and_a_value_are_told_apart():
    data = {"queue": {}, "resources": {"workers": 2, "gpus_per_worker": "auto"}}
    assert sorted(str(problem) for problem in planned_feature_problems(data)) == [
        "queue: not there yet (it comes with a later release)",
        "resources.gpus_per_worker: auto is not there yet (it comes with a later release); "
        "give a number",
    ]
