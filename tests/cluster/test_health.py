import pytest

from cluster.health import ask


def test_a_cluster_that_does_not_answer_is_given_up(tmp_path):
    answer = ask("127.0.0.1:1", tmp_path, timeout_s=1.0)
    assert not answer.works
    assert answer.text


@pytest.mark.full
@pytest.mark.ray
def test_a_cluster_that_is_started_runs_a_task(tmp_path):
    answer = ask("local", tmp_path)
    assert answer.works, answer.text
    assert answer.text.startswith("1 node, ")
