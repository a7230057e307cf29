import io
import re
import time

from rich.console import Console

from hposvc import spec as specs
from hposvc.events import Ended, Reported, Requested, Suspended
from hposvc.state.sweep import SweepState
from hposvc.views.dashboard import (
    TRIALS,
    Configuration,
    Panels,
    elapsed_s,
    remaining_s,
    status_view,
    trend,
    varying,
)


def text_of(drawn, width=100):
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    console.print(drawn)
    return console.file.getvalue()


def test_the_panel_shows_progress_best_and_what_runs(story):
    story.begin("t0001", 1, lr=0.1)
    story.report("t0001", 1, 1, 0.5)
    story.stop("t0001", 1, 1, "rung")
    story.begin("t0002", 2)
    story.report("t0002", 2, 1, 0.4)
    story.report("t0002", 2, 2, 0.91)
    text = text_of(Panels("digits-1").draw(story.state, 75.0))
    assert "digits-1" in text
    assert "1 of 5 trials" in text
    assert "1m 15s of 2h 00m" in text
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


def test_a_trial_that_was_ordered_again_says_how_often(story):
    story.begin("t0001", 1)
    story.fail("t0001", 1, "gone")
    state = story.state
    state.trials["t0001"].attempts = 2
    story.begin("t0002", 2)
    state.trials["t0002"].attempts = 3
    assert "t0002 ×3" in text_of(Panels("digits-1").draw(state, 1.0))


def test_only_so_many_rows_are_shown(story):
    for number in range(1, 8):
        story.begin(f"t{number:04}", number)
    text = text_of(Panels("digits-1", rows=3).draw(story.state, 1.0))
    assert "t0003" in text
    assert "t0004" not in text
    assert "… and 4 more" in text


def test_a_sweep_without_a_report_has_a_panel(story):
    text = text_of(Panels("digits-1").draw(story.state, 0.0))
    assert "no val/accuracy yet" in text
    assert "no trials yet" in text


def test_a_long_configuration_is_cut_not_wrapped(story):
    story.begin("t0001", 1)
    story.report("t0001", 1, 1, 0.5)
    narrow = text_of(Panels("digits-1").draw(story.state, 1.0), width=72)
    assert all(len(line) == 72 for line in narrow.splitlines())
    line = next(line for line in narrow.splitlines() if "1/27" in line)
    assert re.search(r"0\.5 +▄ +0s +lr 0\.001 +… +│", line)


def test_names_are_no_markup(story):
    story.begin("[red]t[/red]", 1)
    assert "[red]t[/red]" in text_of(Panels("[bold]x").draw(story.state, 1.0))


def test_a_trend_is_drawn_as_the_values_go(story):
    story.begin("t0001", 1)
    for step in range(1, 28):
        story.report("t0001", 1, step, step / 27)
    assert trend(story.state.trials["t0001"]) == "▁▂▃▄▄▅▆▇"


def test_drawing_ten_thousand_trials_costs_no_more_than_ten(story):
    def seconds():
        start = time.process_time()
        for _ in range(20):
            text_of(Panels("digits-1").draw(story.state, 1.0))
        return time.process_time() - start

    for number in range(1, 11):
        story.begin(f"t{number:05}", number)
        story.stop(f"t{number:05}", number, 1, "rung")
    seconds_of_ten = seconds()
    for number in range(11, 10_001):
        story.begin(f"t{number:05}", number)
        story.stop(f"t{number:05}", number, 1, "rung")
    assert seconds() < 3 * seconds_of_ten


def test_a_simulation_has_its_own_clock(story):
    story.begin("t0001", 1)
    assert elapsed_s(story.state, now=1e12) == 1.0


def test_a_sweep_without_its_driver_is_interrupted_and_so_are_its_trials(story):
    story.begin("t0001", 1)
    text = text_of(status_view("digits-1", story.state, "dead", terminal=True))
    assert "INTERRUPTED · 0s" in text
    assert "1 interrupted" in text
    assert "RUNNING" not in text
    assert "not running (interrupted); go on with: hposvc resume digits-1" in text
    assert "resume" not in text_of(status_view("digits-1", story.state, "alive", terminal=True))


def test_a_paused_sweep_says_only_that(story):
    story.happen(Requested(story.tick(), "pause"), Suspended(story.tick()))
    text = text_of(status_view("digits-1", story.state, "none", terminal=True))
    assert "PAUSED" in text
    assert "not running" not in text


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
    for number in range(1, 4):
        assert remaining_s(story.state, 90.0) is None
        story.begin(f"t{number:04}", number)
        story.report(f"t{number:04}", number, 27, 0.5)
        story.happen(Ended(story.tick(), number, f"t{number:04}"))
    assert remaining_s(story.state, 90.0) == 60.0  # 3 of 5 took 90 s
    assert remaining_s(story.state, 7190.0) == 9.0  # of 2 h, one second of which was a wait
    assert "about 1m 00s left" in text_of(Panels("digits-1").draw(story.state, 91.0))


def under(story, scheduler):
    """Return a story of the same sweep under another scheduler."""
    data = {**specs.dump(story.state.spec), "scheduler": scheduler}
    return type(story)(SweepState(specs.restore(data)))


def test_no_time_left_is_made_up_where_trials_end_all_in_the_last_rung(story):
    scheduler = {"type": "asha", "mode": "promote"}
    story = under(story, scheduler)
    for number in range(1, 4):
        story.begin(f"t{number:04}", number)
        story.stop(f"t{number:04}", number, 1, "user")
    assert remaining_s(story.state, 90.0) is None


def test_what_each_rung_holds_is_shown(story):
    story = under(story, {"type": "asha"})
    for number, steps in enumerate((1, 3, 9), 1):
        story.begin(f"t{number:04}", number)
        for step in range(1, steps + 1):
            story.report(f"t{number:04}", number, step, 0.5)
    text = text_of(Panels("digits-1").draw(story.state, 1.0))
    assert "3 at 1 · 2 at 3 · 1 at 9 · 0 at 27 epoch" in text


def test_a_sweep_whose_scheduler_is_not_here_is_shown_without_rungs(story):
    """The sweep runs on a cluster, which has the scheduler's module."""
    story = under(story, {"type": "nowhere_to_be_found:Mine"})
    story.begin("t0001", 1)
    text = text_of(Panels("digits-1").draw(story.state, 1.0))
    assert "0 of 5 trials" in text
    assert "rungs" not in text


def test_a_configuration_keeps_whole_parameters_those_that_differ_first(story):
    story.begin("t0001", 1, lr=0.001)
    story.begin("t0002", 2, lr=0.002)
    trials = list(story.state.trials.values())
    assert varying(story.state, trials) == ["lr", "batch"]
    line = Configuration([("lr", "0.001"), ("batch", "64"), ("dropout", "0.25")])
    assert text_of(line, width=22).strip() == "lr 0.001  batch 64  …"
    assert text_of(line, width=60).strip() == "lr 0.001  batch 64  dropout 0.25"
