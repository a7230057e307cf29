import io
import re
import time

from rich.console import Console

from hposvc.events import Reported
from hposvc.views.panel import Panels, at_rest, elapsed_s, trend


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
    assert "RUNNING · 1m 15s" in text


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
    narrow = text_of(Panels("digits-1").draw(story.state, 1.0), width=60)
    assert all(len(line) == 60 for line in narrow.splitlines())
    assert "t0001    1/27            0.5   ▄          lr 0.001" in narrow


def test_names_are_no_markup(story):
    story.begin("[red]t[/red]", 1)
    assert "[red]t[/red]" in text_of(Panels("[bold]x").draw(story.state, 1.0))


def test_a_trend_is_drawn_so_that_better_is_higher(story):
    story.begin("t0001", 1)
    for step in range(1, 28):
        story.report("t0001", 1, step, step / 27)
    assert trend(story.state.trials["t0001"]) == "▁▂▃▄▄▅▆▇"


def test_drawing_ten_thousand_trials_costs_no_more_than_ten(story):
    def seconds():
        begin = time.process_time()
        for _ in range(20):
            text_of(Panels("digits-1").draw(story.state, 1.0))
        return time.process_time() - begin

    for number in range(1, 11):
        story.begin(f"t{number:05}", number)
        story.stop(f"t{number:05}", number, 1, "rung")
    few = seconds()
    for number in range(11, 10_001):
        story.begin(f"t{number:05}", number)
        story.stop(f"t{number:05}", number, 1, "rung")
    assert seconds() < 3 * few


def test_a_simulation_has_its_own_clock(story):
    story.begin("t0001", 1)
    assert elapsed_s(story.state, now=1e12) == 1.0


def test_a_dead_driver_is_said_to_be_dead(story):
    text = text_of(at_rest("digits-1", story.state, "dead", terminal=True))
    assert "its last driver died; go on with: hposvc resume digits-1" in text
    assert "resume" not in text_of(at_rest("digits-1", story.state, "alive", terminal=True))
