"""Options that exclude each other. If these fail, a sweep finds out on its GPUs, hours later."""

import pytest

from trainables import Training
from trainables.combinations import RULES, check, refusals


def test_one_rank_for_several_workers_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"training\.strategy is single, but a trial has several"):
        check(Training(), 2, "stop")


def test_every_reason_is_told_at_once():
    with pytest.raises(ValueError, match=r"(?s)gradient_compression is fp16.*tensor_parallel is 2"):
        check(Training("pipeline", gradient_compression="fp16", tensor_parallel=2), 2, "stop")


def test_what_becomes_of_a_bad_update_is_refused_where_ranks_cannot_do_it():
    local, rounded = Training("local_sgd"), Training("ddp", gradient_compression="powersgd")
    with pytest.raises(ValueError, match=r"failure\.nan is rollback, but ranks of local_sgd"):
        check(local, 2, "rollback")
    with pytest.raises(ValueError, match=r"failure\.nan is skip, but powersgd adds"):
        check(rounded, 2, "skip")
    check(local, 2, "skip")
    for alone in (Training(gradient_compression="none"), local):
        check(alone, 1, "rollback")  # one rank is no strategy's


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.option)
def test_a_rule_is_about_an_option_that_exists(rule):
    assert hasattr(Training(), rule.option)


@pytest.mark.parametrize(
    ("strategy", "options"),  # the last option is the one that is refused
    [
        ("ddp", {"precision": "16-mixed", "gradient_compression": "powersgd"}),
        ("ddp", {"deterministic": True, "gradient_compression": "fp16"}),
        ("fsdp", {"gradient_compression": "fp16"}),
        ("fsdp", {"tensor_parallel": 4}),
        ("local_sgd", {"sync_batchnorm": True}),
        ("pipeline", {"accumulate": 2, "sync_batchnorm": True}),
        ("pipeline", {"accumulate": 1}),
        ("pipeline", {"pipeline_schedule": "interleaved", "accumulate": 3}),
    ],
)
def test_options_that_a_strategy_cannot_obey_are_refused(strategy, options):
    """test_training_page.py holds a table of many more against the code."""
    assert [name for name, _ in refusals(Training(strategy, **options), 2)] == [[*options][-1]]
