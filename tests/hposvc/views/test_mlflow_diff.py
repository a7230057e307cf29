"""What `hposvc doctor ID` says of MLflow."""

import pytest
from replicated import text_of

from hposvc.tracking.comparison import Comparison, Difference
from hposvc.views.mlflow_diff import differences, verdict

LOST = Difference("t0001", "status", "RUNNING", "FINISHED", "tell")
OWN = Difference("", "param lr", "'0.1'", "'0.2'", "kept")


def compared(*found, stance="compared"):
    return Comparison("valley", stance, 3, 40, tuple(found))


@pytest.mark.parametrize(
    ("comparison", "said"),
    [
        (compared(), "MLflow agrees with the journal: 3 runs, 40 points compared"),
        (compared(stance="mended"), "agrees with the journal, now that it was mended"),
        (compared(LOST), "differs from the journal in 1 things (3 runs, 40 points compared)"),
        (compared(LOST, OWN), "in 1 things"),
        (compared(LOST), "hposvc doctor valley --fix mends it"),
        (compared(LOST, stance="driven"), "its driver is at work"),
        (compared(LOST, stance="mended"), "try again"),
        (compared(stance="unrecorded"), "valley: not recorded in MLflow"),
    ],
)
def test_the_verdict_says_what_differs_and_what_to_do(comparison, said):
    assert said in verdict(comparison)


def test_a_difference_of_the_sweep_s_own_run_has_the_sweep_s_name():
    lines = text_of(differences(compared(LOST, OWN))).splitlines()
    assert any("t0001" in line and "--fix tells it again" in line for line in lines)
    assert any("valley" in line and "it stays" in line for line in lines)
