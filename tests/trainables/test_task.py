import pytest

from trainables.task import Task


def test_a_task_that_says_too_little_names_what_is_missing():
    with pytest.raises(TypeError, match="build_model"):
        Task()
