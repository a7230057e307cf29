"""What is said of a node that could not look at a folder."""

from ray.exceptions import RayTaskError, WorkerCrashedError

from cluster.sharing import _plainly


def test_the_cause_is_told_and_not_only_that_a_task_failed():
    failed = RayTaskError("look", "a long stack", PermissionError("no access to /x"))
    assert _plainly(failed) == "PermissionError: no access to /x"
    assert _plainly(WorkerCrashedError()).startswith("WorkerCrashedError: The worker died")
