"""A dashboard that is asked again."""

import pytest

from cluster.jobs import JobsError
from hposvc.remote import jobs
from hposvc.remote.jobs import with_retries


def test_a_dashboard_may_be_away_for_a_moment_and_no_longer(monkeypatch):
    monkeypatch.setattr(jobs, "RETRY_S", 0.0)
    answers = iter([None, None, "there"])

    def ask() -> str:
        answer = next(answers)
        if answer is None:
            raise JobsError("away")
        return answer

    assert with_retries(ask) == "there"
    monkeypatch.setattr(jobs, "PATIENCE_S", 0.0)
    answers = iter([None, None])
    with pytest.raises(JobsError, match="away"):
        with_retries(ask)
