"""Messages about nodes that could not check a folder."""

from ray.exceptions import RayTaskError, WorkerCrashedError

from cluster.shared_storage import _describe_error


def test_the_cause_is_told_and_not_only_that_a_task_failed():
    failed = RayTaskError("look", "a long stack", PermissionError("no access to /x"))
    assert _describe_error(failed) == "PermissionError: no access to /x"
    assert _describe_error(WorkerCrashedError()).startswith("WorkerCrashedError: The worker died")
