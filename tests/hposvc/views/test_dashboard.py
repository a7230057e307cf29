import re
from dataclasses import replace

from printed import text_of

from hposvc import spec as specs
from hposvc.events import Attached, Ended, Proposed, Reported
from hposvc.spec.sections import Price
from hposvc.spec.stopping import Budget
from hposvc.state.sweep import SweepState
from hposvc.views.dashboard import TRIALS, Panels, status_view
from hposvc.views.watch.header import header

FAILED = "the model failed: overflow encountered in multiply"


def test_the_panel_shows_progress_best_and_what_runs(story):
    story.begin("t0001", 1, lr=0.1)
    story.report("t0001", 1, 1, 0.5)
    story.stop("t0001", 1, 1, "rung")
    story.begin("t0002", 2)
    story.report("t0002", 2, 1, 0.6)
    story.report("t0002", 2, 2, 0.91)
    text = text_of(Panels("digits-1").draw(story.state, 75.0))
    assert "digits-1" in text
    assert "1 of 5 trials" in text
    assert "1m 15s of 2h" in text
    assert "val/accuracy 0.91  t0002 at epoch 2" in text
    running = next(line for line in text.splitlines() if "2/27" in line)
    for part in ("t0002", "0.91", "▁▇", "lr 0.001  batch 64"):
        assert part in running
    assert "1 running · 1 stopped" in text
    assert "RUNNING · 1m 14s" in text  # it waited a second for its first slot


def tell(story, order, step, loss, size):
    metrics = {"loss": loss, "size": size}
    return story.happen(Reported(story.tick(), order, f"t{order:04}", step, metrics))


def test_a_front_is_a_row_a_trial_and_running_ones_have_all_metrics(two):
    two.begin("t0001", 1)
    assert "no loss and size yet" in text_of(Panels("digits-1").draw(two.state, 1.0))
    tell(two, 1, 1, 0.1, 99)
    assert "no trial keeps the limits yet" in text_of(Panels("digits-1").draw(two.state, 1.0))
    for number in range(2, 12):
        two.begin(f"t{number:04}", number)
        tell(two, number, 1, number / 100, 50 - number)
    text = text_of(Panels("digits-1").draw(two.state, 1.0))
    assert re.search(r"front +loss +size", text)
    front = text[: text.index("of 10")]  # of ten on it some are shown, the ends among them
    assert re.search(r"0.02 +48 +t0002 +lr 0.001", front)
    assert re.search(r"0.11 +39 +t0011", front)
    assert len(re.findall(r" t00\d\d ", front)) == 6
    assert re.search(r"t0001 +1/27 +0.1 +99 ", text)


def test_names_are_no_markup(story):
    story.begin("[red]t[/red]", 1)
    assert "[red]t[/red]" in text_of(Panels("[bold]x").draw(story.state, 1.0))


def test_a_sweep_without_its_driver_is_interrupted_and_so_are_its_trials(story):
    story.begin("t0001", 1)
    text = text_of(status_view("digits-1", story.state, "dead", terminal=True))
    assert "INTERRUPTED · 0s" in text
    assert "1 interrupted" in text
    assert "RUNNING" not in text
    assert "not running (interrupted); go on with: hposvc resume digits-1" in text
    assert "resume" not in text_of(status_view("digits-1", story.state, "alive", terminal=True))


def test_a_servers_sweep_without_a_driver_waits_for_one_and_needs_no_resume(story):
    for view in (
        status_view("digits-1", SweepState(story.state.spec), "none", terminal=True, served=True),
        status_view("digits-1", story.state, "dead", terminal=True, served=True),
    ):
        assert "waiting for a driver" in text_of(view)
        assert "resume" not in text_of(view)
    alive = status_view("digits-1", story.state, "alive", terminal=True, served=True)
    assert "waiting for a driver" not in text_of(alive)


def test_a_sweep_of_agents_says_how_to_start_one_while_none_has_a_trial(story):
    spec = specs.dump(story.state.spec)
    story.state = SweepState(specs.load({**spec, "engine": "agents"}))
    story.happen(Attached(story.time, "host:1"))
    hint = "waiting for agents; start one by: hposvc agent digits-1 --server http://HOST:8900"
    assert hint in text_of(status_view("digits-1", story.state, "alive", terminal=True))
    story.begin("t0001", 1)
    assert hint not in text_of(status_view("digits-1", story.state, "alive", terminal=True))


def test_fallbacks_of_the_searcher_are_counted_and_the_last_reason_is_said(story):
    story.begin("t0001", 1)
    assert "fell back" not in text_of(status_view("digits-1", story.state, "alive", terminal=True))
    params = {"lr": 0.01, "batch": 64}
    for number, reason in enumerate(["all candidates of the model were tried before", FAILED], 2):
        note = {"source": "fallback", "reason": reason}
        story.happen(Proposed(story.tick(), f"t000{number}", params, note, 27))
    text = text_of(status_view("digits-1", story.state, "alive", terminal=True), width=200)
    said = f"2 of 3 proposals fell back to the quasi-random design; the last time: {FAILED}"
    assert said in text


def test_the_trials_that_ended_last_are_shown_with_how_long_they_took(story):
    for number in range(1, 6):
        story.begin(f"t{number:04}", number)
        story.report(f"t{number:04}", number, 1, number / 10)
        story.stop(f"t{number:04}", number, 1, "rung")
    text = text_of(Panels("digits-1").draw(story.state, story.state.elapsed_s))
    below = text[text.index("ended last") :]
    assert re.search(r"t0005 +1 +0\.5 +2s +stopped \(rung\)", below)
    assert "t0003" in below
    assert "t0002" not in below
    assert TRIALS["STOPPED"] != "yellow"  # a warning, which it is not


def test_the_time_left_follows_the_pace_of_the_trials_that_ended(story):
    assert " left" not in text_of(Panels("digits-1").draw(story.state, 0.0))
    for number in range(1, 4):
        story.begin(f"t{number:04}", number)
        story.time += 60
        story.report(f"t{number:04}", number, 27, 0.5)
        story.happen(Ended(story.tick(), number, f"t{number:04}"))
    drawn = text_of(Panels("digits-1").draw(story.state, story.state.elapsed_s))
    assert "about 2m left (" in drawn  # two more, each of a minute
    later = text_of(Panels("digits-1").draw(story.state, story.state.elapsed_s + 60))
    assert "about 1m left (" in later


def test_a_low_terminal_gets_all_of_it_in_eighty_columns(story):
    story = under(story, {"type": "asha"})
    story.happen(Attached(story.time, "host:1"))
    for number in range(1, 9):
        story.begin(f"t{number:04}", number)
        story.report(f"t{number:04}", number, 1, number / 10)
    for number in range(1, 5):
        story.stop(f"t{number:04}", number, 1, "rung")
    text = text_of(Panels("digits-1", rows=4, tight=True).draw(story.state, 60.0), width=80)
    lines = text.splitlines()
    assert len(lines) <= 24
    assert all(len(line) == 80 for line in lines)
    assert "ended last" in text
    assert "4 of 8 busy" in text


def under(story, scheduler):
    """Return a story of the same sweep under another scheduler."""
    data = {**specs.dump(story.state.spec), "scheduler": scheduler}
    return type(story)(SweepState(specs.restore(data)))


def test_a_sweep_whose_scheduler_is_not_here_is_shown_without_rungs(story):
    """The sweep runs on a cluster, which has the scheduler's module."""
    story = under(story, {"type": "nowhere_to_be_found:Mine"})
    story.begin("t0001", 1)
    text = text_of(Panels("digits-1").draw(story.state, 1.0))
    assert "0 of 5 trials" in text
    assert "rungs" not in text


def test_each_limit_of_the_budget_has_its_bar(story):
    story.begin("t0001", 1)
    price, budget = Price(worker_hour=3.0, currency="EUR"), Budget(wall=7200.0, cost=50.0)
    story.state.spec = replace(story.state.spec, price=price, budget=budget)
    text = text_of(Panels("digits-1").draw(story.state, 75.0))
    assert re.search(r"budget .* 1m 15s of 2h", text)
    assert re.search(r"budget .* 0\.00 of 50\.00 EUR", text)
    lines = header("digits-1", story.state, 75.0, "alive")
    assert any("1m 15s of 2h · 0.00 of 50.00 EUR" in line.plain for line in lines)
