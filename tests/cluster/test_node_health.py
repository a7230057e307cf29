import pytest

from cluster.node_health import NodeHealth, judge, own_issues, speed_issues

SOUND = {"problems": [], "clock": 0.3}


def looked(*values, model="x"):
    """Return the probe of a node with several equal parts."""
    return {
        "speeds": [
            {"what": "matmul", "part": f"GPU {n}", "model": model, "value": value, "unit": "TFLOPS"}
            for n, value in enumerate(values)
        ]
    }


@pytest.mark.parametrize(
    ("clock", "said", "fatal"),
    [
        (-7.0, "its clock is 7.0 s behind ours", False),
        (70.0, "its clock is 70.0 s before ours", True),
    ],
)
def test_a_clock_that_is_off_is_told(clock, said, fatal):
    [issue] = own_issues({**SOUND, "clock": clock})
    assert (issue.text, issue.fatal) == (said, fatal)
    assert issue.remedy


def test_why_nothing_should_run_on_a_node_is_what_is_fatal_there():
    problems = [["it is broken", "mend it", True], ["dusty", "clean it", False]]
    issues = tuple(own_issues({"problems": problems, "clock": -70.0}))
    health = NodeHealth("node-1", "", issues)
    assert health.unfit == "it is broken; its clock is 70.0 s behind ours"
    assert NodeHealth("node-1", "", tuple(own_issues(SOUND))).unfit == ""


def test_what_is_far_slower_than_its_like_is_named():
    behind = speed_issues({"a": looked(100.0, 98.0), "b": looked(101.0, 40.0), "c": looked(99.0)})
    assert {node: len(troubles) for node, troubles in behind.items()} == {"a": 0, "b": 1, "c": 0}
    [trouble] = behind["b"]
    assert trouble.text == "matmul of GPU 1 (x): 40 TFLOPS, the median of its like is 99"
    assert trouble.fatal


def test_a_machine_at_work_is_not_held_against_idle_ones():
    """Other work shares its memory, so the node would be rejected for being in use."""
    at_work = {**looked(30.0), "busy": 0.9}
    assert not any(speed_issues({"a": looked(100.0), "b": looked(99.0), "c": at_work}).values())


NODE = {"NodeName": "node-1", "Resources": {"CPU": 8.0}}


def test_a_node_is_described_with_its_resources_and_notes():
    health = judge(NODE, {**SOUND, "notes": ["torch 2.13.0"]}, ())
    assert health.text == "8 CPU, 0 GPU; torch 2.13.0; clock +0.30 s"
    assert not health.issues


def test_a_node_that_does_not_answer_is_unfit_and_says_why():
    assert judge(NODE, "no answer within 120 s", ()).unfit == "no answer within 120 s"
