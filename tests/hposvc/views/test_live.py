import io
import math

from rich.console import Console

from hposvc.events import Ended, Ordered, WarmStarted
from hposvc.views.live import LiveView
from searchers import Observation
from trainables.order import Order


def plain():
    return Console(file=io.StringIO(), width=200, markup=False, highlight=False)


def terminal():
    return Console(file=io.StringIO(), width=100, height=40, force_terminal=True, markup=False)


def said(console):
    """Return the printed lines, without the time of day."""
    return [line[9:] for line in console.file.getvalue().splitlines()]


def test_a_pipe_gets_a_line_a_trial_and_a_line_a_best(story):
    console = plain()
    with LiveView("digits-1", console) as view:
        view.on_events(story.state, story.begin("t0001", 1))
        for step, value in [(1, 0.5), (2, 0.6), (3, 0.7)]:
            view.on_events(story.state, story.report("t0001", 1, step, value))
        view.on_events(story.state, story.stop("t0001", 1, 3, "rung: rank 4 of 5"))
        view.on_events(story.state, story.begin("t0002", 2))
        view.on_events(story.state, story.fail("t0002", 2, "Traceback\nValueError: no luck"))
        view.on_events(story.state, story.finish())
    assert said(console) == [
        "t0001 is the best so far, val/accuracy 0.5",
        "t0001 STOPPED at 3/27 epoch, val/accuracy 0.7 (rung: rank 4 of 5)",
        "t0002 FAILED at 0/27 epoch (user: ValueError: no luck)",
        "COMPLETED: all 2 trials are done",
    ]


def test_both_views_say_what_earlier_sweeps_a_sweep_learns_from(story):
    earlier = tuple(Observation(f"before/t{number}", {}) for number in range(2))
    [event] = story.happen(WarmStarted(story.tick(), earlier))
    for console in (plain(), terminal()):
        with LiveView("digits-1", console) as view:
            view.on_events(story.state, [event])
            view.on_events(story.state, story.begin("t0001", 1))
        text = " ".join(console.file.getvalue().split())
        assert text.count("digits-1: learns from 2 trials of before") == 1


def test_a_trial_that_ran_out_of_memory_says_how_small_it_was_and_one_that_diverged_why(story):
    console = plain()
    with LiveView("digits-1", console) as view:
        story.begin("t0001", 1)
        story.begin("t0002", 2)
        story.fail("t0001", 1, "Traceback\nTooLarge: 8 samples", "oversize")
        story.happen(Ordered(story.tick(), Order(3, "t0001", {"lr": 0.1}, None, 1, 27)))
        view.on_events(story.state, story.fail("t0001", 3, "OutOfMemoryError: CUDA", "oom"))
        view.on_events(story.state, story.fail("t0002", 2, "loss nan", "diverged"))
    assert said(console) == [
        "t0001 FAILED at 0/27 epoch, micro-batches of 1/2 (oom: OutOfMemoryError: CUDA)",
        "t0002 STOPPED at 0/27 epoch (diverged: loss nan)",
    ]


def test_the_best_so_far_is_what_best_says_at_that_moment(story):
    """Trials are compared at the same step, and the printed best changes no more often."""
    console = plain()
    bests = []
    with LiveView("digits-1", console) as view:
        view.on_events(story.state, [*story.begin("t0001", 1), *story.begin("t0002", 2)])
        reports = [("t0001", 1, 1, 0.9), ("t0002", 2, 1, 0.6), ("t0001", 1, 2, 0.5)]
        reports += [("t0002", 2, 2, math.nan), ("t0001", 1, 3, 0.7)]
        for report in reports:
            view.on_events(story.state, story.report(*report))
            bests.append((story.state.best, story.state.trials[story.state.best].value))
    assert bests == [("t0001", 0.9), ("t0001", 0.9), ("t0001", 0.5), ("t0001", 0.5), ("t0001", 0.7)]
    assert said(console) == ["t0001 is the best so far, val/accuracy 0.9"]


def test_a_best_whose_value_looks_worse_says_why(story):
    """Accuracies that fall must not make a stopped trial the best."""
    console = plain()
    with LiveView("digits-1", console) as view:
        view.on_events(story.state, [*story.begin("t0001", 1), *story.begin("t0002", 2)])
        view.on_events(story.state, story.report("t0001", 1, 2, 0.9))
        view.on_events(story.state, story.stop("t0001", 1, 2, "rung: rank 2 of 2"))
        for step, value in ((2, 0.95), (27, 0.5)):
            view.on_events(story.state, story.report("t0002", 2, step, value))
        view.on_events(story.state, story.happen(Ended(story.tick(), 2, "t0002")))
    assert said(console)[-2:] == [
        "t0002 COMPLETED at 27/27 epoch, val/accuracy 0.5",
        "t0002 is the best so far, val/accuracy 0.5 (the first that came to its end)",
    ]


def test_a_terminal_gets_the_table_and_its_cursor_back(story):
    console = terminal()
    with LiveView("digits-1", console) as view:
        view.on_events(story.state, story.begin("t0001", 1))
        view.on_events(story.state, story.report("t0001", 1, 1, 0.5))
        view.on_events(story.state, story.finish())
    text = console.file.getvalue()
    assert "digits-1: starting" in text
    assert "COMPLETED: its only trial is done" in text
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    assert text.rindex(shown) > text.rindex(hidden)


def test_the_cursor_comes_back_when_the_sweep_breaks_off():
    console = terminal()
    try:
        with LiveView("digits-1", console):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert console.file.getvalue().endswith("\x1b[?25h")


def test_a_view_that_breaks_does_not_end_the_sweep(story):
    console = plain()
    story.begin("t0001", 1)
    ending = story.stop("t0001", 1, 0, "user")
    del story.state.spec
    with LiveView("digits-1", console) as view:
        view.on_events(story.state, ending)
        view.on_events(story.state, ending)
    assert console.file.getvalue().count("the live view broke") == 1


def test_what_is_waited_for_is_a_line_once():
    console = plain()
    with LiveView("digits-1", console) as view:
        view.say("starting Ray on this machine")
        view.say("")
        view.say("waiting for 1 CPU held by sweep slow")
        view.say("waiting for 1 CPU held by sweep slow")
    assert said(console) == ["starting Ray on this machine", "waiting for 1 CPU held by sweep slow"]


def test_lines_say_now_and_then_how_the_whole_sweep_stands(story, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("hposvc.views.live.time.monotonic", lambda: clock[0])
    console = plain()
    with LiveView("digits-1", console) as view:
        view.on_events(story.state, story.begin("t0001", 1))
        for step in range(1, 4):
            clock[0] += 40
            view.on_events(story.state, story.report("t0001", 1, step, 0.5))
    lines = said(console)
    assert len(lines) == 2
    assert lines[1].startswith("0 of 5 trials · best val/accuracy 0.5 (t0001) · slots 1 of 1 busy")
