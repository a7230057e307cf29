"""The screen of `watch`, driven by Textual's pilot as by a person's keys."""

import asyncio
import math
from contextlib import asynccontextmanager

import pytest
from simulated_sweeps import make_several, make_spec
from sweep_stories import begin, report
from watched_sweeps import failing, watched

from hposvc.errors import NotFound, OutOfReach
from hposvc.events import Attached, Ended, Finished
from hposvc.state.receipt import RequestReceipt
from hposvc.views.watch.screen import WatchApp

SMALL = (80, 24)


def running(count=3):
    """Return the events of a sweep with so many running trials."""
    events = [Attached(0.0, "here:1")]
    for number in range(1, count + 1):
        events += [*begin(number, number, {"lr": 10.0**-number})]
        events.append(report(number, number + 0.5, 1, number / 10))
    return events


@asynccontextmanager
async def at(sweep, size=SMALL, steer=None):
    """Show a sweep; yields the app and its pilot."""
    app = WatchApp(*sweep, steer or (lambda *request: None))
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        yield app, pilot


async def settle(app, pilot):
    """Wait until what was read is on the screen."""
    await pilot.pause()
    await app.workers.wait_for_complete()
    await pilot.pause()


async def press(app, pilot, *keys):
    await pilot.press(*keys)
    await settle(app, pilot)


def text_of(app):
    """Return what is on the screen, line by line."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def test_all_of_it_is_on_eighty_columns_and_the_keys_choose_a_trial():
    async def tell():
        async with at(watched(make_spec(scheduler="asha"), running())) as (app, pilot):
            text = text_of(app)
            assert "digits-1  running" in text
            assert "best   loss 0.1  t0001 at step 1" in text
            assert "loss 0.1 at step 1" in text  # the curve of the first trial
            assert "0 of 12 · slots 3 of 3 busy" in text
            assert "rungs  3 at 1 · 0 at 3" in text
            assert "q quit" in text
            assert all(len(line) <= 80 for line in text.splitlines())
            await press(app, pilot, "down", "right")
            assert app.table.chosen == "t0002"
            assert "proposed" in text_of(app)
            await press(app, pilot, "right", "right")
            assert "t0002: epoch 1" in text_of(app)
            await press(app, pilot, "end", "enter")
            assert app.table.chosen == "t0003"
            assert app.screen.has_class("zoomed")

    asyncio.run(tell())


def test_new_events_are_read_once_and_shown():
    async def tell():
        source, _ = sweep = watched(make_spec(), running())
        async with at(sweep) as (app, pilot):
            source.events += [report(3, 9.0, 9, 0.01), Ended(9.0, 3, "t0003")]
            app.look()
            await settle(app, pilot)
            assert "best   loss 0.01  t0003 at step 9" in text_of(app)
            assert app.board.names[0] == "t0003"
            read = len(source.events)
            assert source.reads[-1] >= read - 2
            assert app.table.chosen == "t0001"  # what somebody looks at stays

    asyncio.run(tell())


def test_a_filter_is_typed_and_a_wrong_one_says_what_is_wrong():
    async def tell():
        async with at(watched(make_spec(), running())) as (app, pilot):
            await press(app, pilot, "slash", *"lr<0.05", "enter")
            assert app.board.names == ["t0002", "t0003"]
            assert app.table.chosen == "t0002"
            await press(app, pilot, "slash", *"x>1", "enter")
            assert "there is no column" in text_of(app)
            await press(app, pilot, "escape")
            assert len(app.board.names) == 3
            await press(app, pilot, "f", "f")
            assert app.board.names == []
            assert "no trial is like that" in text_of(app)

    asyncio.run(tell())


def test_a_request_is_asked_about_sent_and_answered():
    sent = []

    def steer(*request):
        sent.append(request)
        return RequestReceipt("digits-1", "RUNNING", "alive", "host:7")

    async def tell():
        async with at(watched(make_spec(), running()), steer=steer) as (app, pilot):
            await press(app, pilot, "s", "escape")
            assert sent == []
            await press(app, pilot, "s", "t")
            assert sent == [("stop", "t0001", {})]
            assert "asked the driver (process 7 on host): t0001 ends" in text_of(app)
            await press(app, pilot, "p")
            assert "hposvc resume goes on" in text_of(app)
            await press(app, pilot, "y")
            assert sent[-1] == ("pause", None, {})
            await press(app, pilot, "e", *"8", "enter")
            assert sent[-1][:2] == ("extend", None)
            await press(app, pilot, "r")
            assert "no trial has failed" in text_of(app)
            assert len(sent) == 3

    asyncio.run(tell())


def test_a_refused_request_says_why():
    def steer(*request):
        raise NotFound("t0001 of digits-1 is RUNNING; only trials that failed are tried again")

    async def tell():
        async with at(watched(make_spec(), failing(2)), steer=steer) as (app, pilot):
            await press(app, pilot, "r", "w")
            assert "refused: t0001 of digits-1 is RUNNING" in text_of(app)

    asyncio.run(tell())


def test_it_stays_at_the_end_and_says_how_the_sweep_ended():
    async def tell():
        source, _ = sweep = watched(make_spec(), running(1))
        async with at(sweep) as (app, pilot):
            source.events += [Ended(9.0, 1, "t0001"), Finished(9.5, "STOPPED", "user")]
            source.driver = "none"
            app.look()
            await settle(app, pilot)
            assert "stopped: a user asked for it" in text_of(app)
            await press(app, pilot, "k")
            assert "digits-1 has ended: STOPPED" in text_of(app)
            await press(app, pilot, "q")
            assert not app.is_running

    asyncio.run(tell())


def test_a_source_that_is_out_of_reach_is_named_and_asked_again():
    async def tell():
        source, _ = sweep = watched(make_spec(), running())
        read = source.read

        def out_of_reach(name, after):
            raise OutOfReach("http://h:8900 does not answer")

        async with at(sweep) as (app, pilot):
            source.read = out_of_reach
            app.look()
            await settle(app, pilot)
            assert "no answer, trying again: http://h:8900 does not answer" in text_of(app)
            source.read = read
            app.look()
            await settle(app, pilot)
            assert "no answer" not in text_of(app)

    asyncio.run(tell())


NAN = [*running(1), report(1, 5.0, 2, math.nan), report(1, 6.0, 3, math.inf)]


@pytest.mark.parametrize(
    ("spec", "events"),
    [
        (make_spec(), []),
        (make_spec(), NAN),
        (make_several(), [Attached(0.0, "here:1"), *begin(1, 1.0)]),
        (make_spec(fidelity=None, scheduler="fifo"), running(2)),
    ],
)
def test_odd_sweeps_have_every_view_at_every_size(spec, events):
    async def tell():
        async with at(watched(spec, events)) as (app, pilot):
            for size in ((40, 12), (160, 50)):
                await pilot.resize_terminal(*size)
                for _ in range(4):
                    await press(app, pilot, "right")
                    assert "digits-1" in text_of(app)

    asyncio.run(tell())


def test_help_lists_the_keys_and_any_key_goes_back():
    async def tell():
        async with at(watched(make_spec(), running())) as (app, pilot):
            await press(app, pilot, "question_mark")
            assert "leave; the sweep goes on" in text_of(app)
            await press(app, pilot, "x")
            assert "q quit" in text_of(app)

    asyncio.run(tell())
