"""What looks for broken promises finds them: a round that can't fail would prove nothing."""

import json

from aftermath import Ledger
from injections import INJECTIONS
from promise import FULL_JOURNAL, JOURNAL_AWAY, Attempt, diaries, redone, unheard, words
from rounds import joins, plan
from scene import End
from wandering import MOOD

from hposvc.events import Attached, Ended, Ordered, Reported, Suspended
from trainables.order import Order

ORDER = Order(1, "t0001", {"lr": 0.01}, None, 1, 3, milestones=(2,))


def ledger_of(*steps):
    """What the journal has of the first trial."""
    ledger = Ledger()
    ledger.points["t0001"] = {step: {"loss": 0.0} for step in steps}
    return ledger


def attempts(*heard):
    """Steps 1, 2, ... of the first order; whether the report of each came back."""
    return [
        Attempt("t0001", 1, step, step, step + 0.5 if came else None)
        for step, came in enumerate(heard, start=1)
    ]


def test_a_report_that_was_waited_for_and_is_in_no_journal_is_lost():
    (lost,) = unheard([Ordered(0.0, ORDER)], attempts(True, True), ledger_of())
    assert lost == "t0001 step 2 of order 1"


def test_a_report_that_no_decision_answered_may_be_lost_with_its_driver():
    assert not [*unheard([Ordered(0.0, ORDER)], attempts(True, False), ledger_of())]


def test_once_an_order_has_ended_each_of_its_reports_counts():
    events = [Ordered(0.0, ORDER), Ended(9.0, 1, "t0001")]
    lost = [*unheard(events, attempts(True, True, True), ledger_of(2))]
    assert [each.split(" of ")[0] for each in lost] == ["t0001 step 1", "t0001 step 3"]


def test_a_report_that_is_on_record_is_not_lost():
    events = [Ordered(0.0, ORDER), Reported(1.0, 1, "t0001", 2, {"loss": 0.0})]
    assert not [*unheard(events, attempts(True, True), ledger_of(1, 2))]


def test_work_is_redone_if_a_later_order_does_the_same_step_of_the_same_trial():
    first = Attempt("t0001", 1, 4, begun=0.0, heard=0.5)
    broken = Attempt("t0001", 1, 5, begun=1.0, heard=None)  # at most as long as the longest one
    again = [Attempt("t0001", 2, step, 10.0 + step, 10.25 + step) for step in (4, 5, 6)]
    other = Attempt("t0002", 3, 6, begun=0.0, heard=9.0)
    assert redone([first]) == 0.0
    assert redone([first, *again]) == 2 * 0.5
    assert redone([first, broken, *again]) == 2 * (0.5 + 0.5)
    assert redone([*again, other]) == 0.0


def test_a_diary_is_read_to_its_last_whole_word(tmp_path):
    said = [("begun", 1, 1.0), ("heard", 1, 2.0), ("begun", 2, 2.5)]
    lines = [
        json.dumps({"what": what, "step": step, "time": time, "pid": 7, "trial": "t1", "order": 3})
        for what, step, time in said
    ]
    (tmp_path / "diary-7.jsonl").write_text("\n".join(lines))
    assert diaries(tmp_path) == [Attempt("t1", 3, 1, 1.0, 2.0), Attempt("t1", 3, 2, 2.5, None)]


def test_a_driver_that_rests_without_a_word_and_one_that_breaks_are_found():
    events = [Attached(0.0, "here:1"), Suspended(1.0, "disk full"), Attached(2.0, "here:2")]
    advice = "no room: 0 B free; free some (hposvc gc), then: hposvc resume round-1"
    assert not [*words("round-1", [End(5, advice, 2), End(5, "MLflow is behind", 3)], events)]
    assert not [*words("round-1", [End(5, f"journal x: {FULL_JOURNAL} ...", 2)], events)]
    assert not [*words("round-1", [End(5, f"journal x: {JOURNAL_AWAY}: ...", 2)], events)]
    assert len([*words("round-1", [End(0, advice, 2), End(5, "no room: 0 B", 2)], events)]) == 2
    assert [*words("round-1", [End(1, "hposvc broke", 3)], events)] == [
        "a driver broke: hposvc broke"
    ]
    assert not [*words("round-1", [End(2, f"the searcher raised {MOOD}", 3)], events)]
    assert len([*words("round-1", [End(2, "bad spec", 3), End(1, MOOD, 3)], events)]) == 2


def test_no_two_injections_of_a_round_move_the_same_part_of_the_sweep():
    assert not joins("journal-disk", "postgres", "asha")
    assert not joins("postgres", "journal-disk", "asha")
    assert not joins("driver", "driver", "asha")
    assert not joins("searcher", "driver", "pbt")
    assert joins("searcher", "driver", "asha")
    assert joins("home-disk", "journal-disk", "pbt")
    for names in (plan(seed).injections for seed in range(600)):
        places = [place for name in names if (place := INJECTIONS[name].place)]
        assert len(names) == len({*names}), names
        assert len(places) == len({*places}), names
