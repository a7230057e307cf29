import fcntl
import json

import pytest

from cluster.health import ask, running
from cluster.launch import ADDRESS, KEEPER


def test_a_ray_that_nobody_keeps_does_not_run(tmp_path):
    assert running(tmp_path / "none") is None
    (tmp_path / ADDRESS).write_text(json.dumps({"address": "127.0.0.1:1", "pid": 1}))
    assert running(tmp_path) is None


def test_a_ray_that_is_kept_has_an_address(tmp_path):
    (tmp_path / ADDRESS).write_text(json.dumps({"address": "127.0.0.1:1", "pid": 1}))
    with (tmp_path / KEEPER).open("w") as keeper:
        fcntl.flock(keeper, fcntl.LOCK_EX)
        assert running(tmp_path) == "127.0.0.1:1"


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
