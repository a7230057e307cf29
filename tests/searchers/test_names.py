"""Hints for wrong names: a wrong hint costs more than none."""

import pytest

from hposvc.cli.app import Verbs
from searchers.names import closest, nearest


@pytest.mark.parametrize(
    ("wrong", "known", "hint"),
    [
        ("bayes", ["cmaes", "gp", "tpe"], "did you mean 'gp'?"),
        ("gaussian_process", ["gp", "grid"], "did you mean 'gp'?"),
        ("optuna", ["gp", "tpe"], "did you mean 'tpe'?"),
        ("ASHAScheduler", ["asha", "fifo"], "did you mean 'asha'?"),
        ("num_samples", ["metric", "name"], "here that is trials.max"),
        ("max_concurrent", ["metric", "name"], "here that is trials.parallel"),
        ("distribution", ["log", "max", "min"], "did you mean 'log'?"),
        ("learning_rate", ["lr", "batch"], "known: batch, lr"),
    ],
)
def test_a_word_of_another_tool_is_answered_with_ours(wrong, known, hint):
    assert nearest(wrong, known) == hint


def test_the_closest_name_is_as_much_alike_as_is_asked_for():
    assert closest("max_dept", ["max_depth", "max_leaves"]) == "max_depth"
    assert closest("depth", ["max_depth", "max_leaves"]) == "max_depth"
    assert closest("depth", ["max_depth", "max_leaves"], 0.8) == ""


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("rum", "run"), ("rnu", "run"), ("rmm", "rm"), ("resum", "resume"), ("statis", "status")],
)
def test_of_verbs_that_are_alike_the_one_that_begins_alike_is_meant(wrong, right):
    assert closest(wrong, Verbs("hposvc").list_commands(None)) == right
