"""The table of `hposvc trials`; copies are in the live view, too."""

import re
from dataclasses import replace

import pytest
from printed import text_of

from hposvc.events import Ordered, Proposed
from hposvc.spec.sections import Price
from hposvc.state import summary
from hposvc.verbs.trials import table
from hposvc.views.dashboard import Panels
from trainables.order import Order
from trainables.storage.checkpoint import Saved


def test_a_copy_names_the_trial_that_it_copied(story):
    story.begin("t0001", 1)
    story.begin("t0002", 2)
    assert "copied" not in text_of(table(summary.trials(story.state, {}), story.state.spec, ()))
    story.report("t0002", 2, 3, 0.5)
    story.fail("t0002", 2, "gone", "infra")
    params, start = {"lr": 0.002, "batch": 64}, Saved(4, "t0001/1-4", "", 0)
    copy = Order(3, "t0002", params, start, 4, 27, parent="t0001")
    story.happen(Ordered(story.tick(), copy))
    listed = summary.trials(story.state, {})
    assert [trial.parent for trial in listed] == [None, "t0001"]
    shown = text_of(table(listed, story.state.spec, ())).splitlines()
    assert shown[1].split()[:3] == ["trial", "copied", "state"]
    assert [line.split()[1] for line in shown if " t0" in line] == ["–", "t0001"]
    assert "t0002 ×2 ← t0001" in text_of(Panels("digits-1").draw(story.state, 1.0))


def test_a_repeat_names_the_trial_whose_configuration_it_has(story):
    story.begin("t0001", 1)
    assert "repeats" not in text_of(table(summary.trials(story.state, {}), story.state.spec, ()))
    params = story.state.trials["t0001"].params
    note = {"source": "repeat", "repeat_of": "t0001"}
    story.happen(Proposed(story.tick(), "t0002", params, note, 27))
    shown = text_of(table(summary.trials(story.state, {}), story.state.spec, ())).splitlines()
    assert shown[1].split()[:3] == ["trial", "repeats", "state"]
    assert [line.split()[1] for line in shown if " t0" in line] == ["–", "t0001"]


def test_smaller_micro_batches_are_a_column_where_there_are_any(story):
    story.begin("t0001", 1)
    story.begin("t0002", 2)
    assert "micro" not in text_of(table(summary.trials(story.state, {}), story.state.spec, ()))
    for number in (2, 3):
        story.fail("t0002", number, "no room", "oversize")
        story.happen(Ordered(story.tick(), Order(number + 1, "t0002", {"lr": 0.1}, None, 1, 27)))
    shown = text_of(table(summary.trials(story.state, {}), story.state.spec, ()))
    assert re.search(r"attempts +micro-batch", shown)
    assert re.search(r"t0001 .* 1 +– +", shown)
    assert re.search(r"t0002 .* 3 +1/4 ", shown)


def test_money_is_a_column_where_a_price_is_known(story):
    story.begin("t0001", 1)
    assert "money" not in text_of(table(summary.trials(story.state, {}), story.state.spec, ()))
    story.time += 3600.0
    story.report("t0001", 1, 1, 0.5)
    priced = replace(story.state.spec, price=Price(worker_hour=3.0, currency="EUR"))
    ranks, story.state.spec = priced.resources.ranks, priced
    (row,) = summary.trials(story.state, {})
    assert row.money == pytest.approx(3.0 * ranks, rel=0.01)
    shown = text_of(table([row], priced, ()))
    assert re.search(rf"t0001 .* {row.money:.2f} EUR", shown)
