"""Notifications: each moment arrives, whichever process dies, and is sent once if none does."""

import os
import signal
import threading

import pytest
from receivers import receiver
from simulated_sweeps import Lab, make_spec
from waiting import until

from hposvc import spec as specs
from hposvc.events import Alerted, Finished
from hposvc.journal.deliveries import Deliveries, Delivery
from hposvc.journal.home import Home
from hposvc.journal.journal import SweepRow
from hposvc.state.sweep import SweepState
from hposvc.tracking import notifications, recorder_process, webhook
from hposvc.tracking.addresses import ALLOWED
from hposvc.tracking.notifications import NotificationSender, Notifier, follow
from hposvc.tracking.recorder_process import Recorder
from hposvc.tracking.webhook import NotSent

SENDER = NotificationSender({ALLOWED: "127.0.0.1", "HOOK": "", "KEY": "sesame"})
SLOW = {
    "engine": {"type": "simulate", "curve": "simulated_sweeps:slow"},
    "tracking": {"send_to": ["json_lines"]},
}
ALL = ["done", "failed", "new_best", {"plateau": 2}]


@pytest.fixture
def home(tmp_path):
    return Home.of(tmp_path / "home", {})


@pytest.fixture
def sweep(home, tmp_path):
    """Run a simulated sweep with these channels; return its row, its spec and its journal."""

    def run(*channels, **sections):
        spec = make_spec(notify=list(channels), **{**SLOW, **sections})
        journal = home.journal()
        row = SweepRow("s", "sweep", "p", 1000.0, specs.dump(spec), {})
        journal.create(row)
        Lab(journal, tmp_path).run(spec)
        return row, spec, journal

    return run


class Clock:
    def __init__(self):
        self.now = 1e9

    def __call__(self):
        return self.now


class Post:
    """Takes messages, unless it is told to fail."""

    def __init__(self):
        self.sent, self.error = [], None

    def __call__(self, channel, message):
        if self.error is not None:
            raise self.error
        self.sent.append((channel.title, message.what, message.id))
        return "ok"


def notifier_of(sweep, send, clock):
    row, spec, journal = sweep
    return Notifier(row, spec, journal, send, clock)


def gone():
    """Return the pipe to a driver that is gone."""
    reading, writing = os.pipe()
    os.close(writing)
    return reading


def moments_of(journal):
    """Return the number of each event that somebody is told of."""
    events = list(journal.read("s"))
    return [seq for seq, event in events if isinstance(event, Alerted | Finished)]


def test_each_moment_is_sent_to_each_channel_that_asks_for_it(sweep):
    ran = sweep(
        {"webhook": "https://a.example/x", "on": ALL},
        {"apprise": "${HOOK}"},
        {"apprise": "mailto://u:p@b.example", "on": ["failed"]},
    )
    post = Post()
    notifier_of(ran, post, Clock()).turn()
    told = [what for title, what, _ in post.sent if title == "webhook a.example"]
    alerts = [event.what for _, event in ran[2].read("s") if isinstance(event, Alerted)]
    assert told == [*alerts, "done"]
    assert {"new_best", "plateau"} <= set(told)
    assert [what for title, what, _ in post.sent if title == "apprise ${HOOK}"] == ["done"]
    assert len({message for *_, message in post.sent}) == len(post.sent)
    assert {delivery.state for delivery in Deliveries(ran[2].store, "s").all()} == {"sent"}


def test_a_failing_channel_is_tried_with_growing_pauses_and_then_given_up(sweep):
    ran, post, clock = sweep({"webhook": "https://a.example/x"}), Post(), Clock()
    post.error = NotSent("HTTP 503", again=True)
    notifier = notifier_of(ran, post, clock)
    pauses = []
    while notifier.unsent == {} or notifier.waiting:
        notifier.turn()
        (delivery,) = Deliveries(ran[2].store, "s").all()
        if delivery.state == "waiting":
            pauses.append(delivery.due - clock.now)
            clock.now = delivery.due
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(pauses) == notifications.LONGEST_S
    assert 3600 < sum(pauses) < 4000
    assert (delivery.state, delivery.attempts, delivery.reason) == ("failed", 21, "HTTP 503")


def test_a_refusal_for_good_is_not_repeated(sweep):
    ran, post, clock = sweep({"webhook": "https://a.example/x"}), Post(), Clock()
    post.error = NotSent("HTTP 404", again=False)
    notifier = notifier_of(ran, post, clock)
    notifier.turn()
    post.error, clock.now = None, clock.now + 1e6
    notifier.turn()
    assert post.sent == []


def test_a_channel_that_is_away_delays_no_other(sweep):
    channels = [{"webhook": f"https://{name}.example/x", "on": ALL} for name in "ab"]
    ran, attempts = sweep(*channels), []

    def send(channel, message):
        attempts.append(channel.title)
        if channel.title == "webhook a.example":
            raise NotSent("away", again=True)
        return "ok"

    notifier_of(ran, send, Clock()).turn()
    assert attempts.count("webhook a.example") == 1
    assert attempts.count("webhook b.example") == len(moments_of(ran[2])) > 2


def test_two_processes_do_not_make_the_same_attempt(sweep):
    ran = sweep({"webhook": "https://a.example/x"})
    deliveries = Deliveries(ran[2].store, "s")
    deliveries.record([Delivery(1, 0, "done")])
    (delivery,) = deliveries.all()
    assert deliveries.claim(delivery, 10.0)
    assert not deliveries.claim(delivery, 10.0)
    assert deliveries.settle(delivery, "sent", 1.0)
    assert not deliveries.settle(delivery, "failed", 2.0, "late")
    deliveries.record([Delivery(1, 0, "done")])
    assert [(item.state, item.attempts) for item in deliveries.all()] == [("sent", 1)]
    ran[2].remove("s")
    assert deliveries.all() == []


def test_a_death_between_sending_and_its_record_repeats_the_message_under_its_id(sweep):
    ran, post, clock = sweep({"webhook": "https://a.example/x"}), Post(), Clock()

    def send_and_die(channel, message):
        post(channel, message)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        notifier_of(ran, send_and_die, clock).turn()
    notifier = notifier_of(ran, post, clock)
    notifier.turn()
    assert len(post.sent) == 1  # the attempt may still be under way
    clock.now += notifications.CLAIM_S
    notifier.turn()
    first, second = post.sent
    assert first == second


def test_a_receiver_that_fails_hangs_and_answers_gets_every_moment(sweep, monkeypatch):
    monkeypatch.setattr(webhook, "LIMIT_S", 2.0)
    with receiver(statuses=[500, 503, 429, 200]) as room:
        ran = sweep({"webhook": room.url, "on": ALL, "secret": "${KEY}"})
        clock = Clock()
        notifier = notifier_of(ran, SENDER.send, clock)
        room.release = threading.Event()
        notifier.turn()  # no answer in time
        room.release.set()
        monkeypatch.setattr(webhook, "LIMIT_S", 30.0)
        while notifier.waiting:
            clock.now += 10.0
            notifier.turn()
        texts = [body["text"] for body in room.taken()]
        assert len(texts) == len(moments_of(ran[2]))
        assert room.ids[0] == room.ids[1]
        body = next(body for body in room.bodies if body["what"] == "done")
        assert body["text"].startswith("COMPLETED: trials; best loss ")
        headers, raw = room.received[-1]
        signed = webhook.signature(
            "sesame", headers["webhook-id"], raw, float(headers["webhook-timestamp"])
        )
        assert headers["webhook-signature"] == signed["webhook-signature"]


def test_a_secret_address_of_apprise_comes_from_its_variable(sweep):
    with receiver() as room:
        ran = sweep({"apprise": "${HOOK}"})
        sender = NotificationSender({"HOOK": room.url.replace("http:", "json:")})
        notifier_of(ran, sender.send, Clock()).turn()
    (body,) = room.bodies
    assert body["title"].startswith("[hposvc] s: COMPLETED")


def test_an_error_that_nobody_foresaw_is_a_failed_attempt(sweep):
    ran, clock = (
        sweep({"webhook": "https://a.example/x"}, {"webhook": "https://b.example/x"}),
        Clock(),
    )

    def send(channel, message):
        raise RuntimeError("https://a.example/secret")

    notifier_of(ran, send, clock).turn()
    deliveries = Deliveries(ran[2].store, "s").all()
    assert {delivery.reason for delivery in deliveries} == {"RuntimeError in hposvc itself"}
    assert [delivery.state for delivery in deliveries] == ["waiting", "waiting"]


def test_a_missing_variable_is_said_when_the_sweep_begins(sweep, home, caplog, monkeypatch):
    row, spec, journal = sweep({"apprise": "${HOOK}"}, {"apprise": "${CHAT}"})
    recorder = Recorder(home, row.id, spec, journal, {"HOOK": "https://a.example/x"})
    monkeypatch.setattr(recorder_process, "RestartedProcess", lambda title, start: None)
    recorder.__enter__()
    assert caplog.messages == [
        "s: apprise ${CHAT} will not be notified: CHAT is not set; export it, and resume"
    ]


def test_the_journals_absence_is_waited_out(sweep, monkeypatch):
    ran, post = sweep({"webhook": "https://a.example/x"}), Post()
    monkeypatch.setattr(notifications, "POLL_S", 0.0)
    trouble = iter([OSError("away"), OSError("away")])

    def begin():
        if (error := next(trouble, None)) is not None:
            raise error
        return notifier_of(ran, post, Clock())

    assert follow(begin, gone())
    assert len(post.sent) == 1


@pytest.mark.full
@pytest.mark.long
def test_a_recorder_that_is_killed_anywhere_loses_no_moment(sweep, home, monkeypatch):
    """The process of each round is killed when the receiver has its message, or before."""
    monkeypatch.setenv(ALLOWED, "127.0.0.1")
    monkeypatch.setattr(recorder_process, "FLUSH_S", 0.0)
    monkeypatch.setattr(recorder_process, "WAIT_S", 60.0)
    with receiver() as room:
        row, spec, journal = sweep({"webhook": room.url, "on": ALL})
        wanted = len(moments_of(journal))
        deliveries = Deliveries(journal.store, "s")
        recorder = Recorder(home, row.id, spec, journal).__enter__()
        for number in range(2):
            room.release = threading.Event()

            def is_heard(number=number):
                recorder.turn(SweepState(spec), [])  # the driver goes on
                return len(room.received) > number

            until(is_heard)
            os.kill(recorder._processes["notifications"].pid, signal.SIGKILL)
            room.release.set()
            _make_due(deliveries)
        recorder.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        room.release = None
        with Recorder(home, row.id, spec, journal):
            pass
        assert len(room.taken()) == wanted > 3
        assert {delivery.state for delivery in deliveries.all()} == {"sent"}
        # Killed twice by this test, and once by the interrupted driver, maybe amid a message.
        assert wanted + 2 <= len(room.received) <= wanted + 3
    log = (home.folder(row.id, None) / "logs" / "recorder.log").read_text()
    assert "secret-path" not in log


def _make_due(deliveries):
    """End the claims of a dead process, as time would."""
    for delivery in deliveries.all():
        if delivery.state == "waiting":
            deliveries.settle(
                Delivery(
                    delivery.seq, delivery.channel, delivery.what, attempts=delivery.attempts - 1
                ),
                "waiting",
                0.0,
            )


def test_a_sweep_does_not_wait_long_for_a_receiver_that_is_away(sweep, home, monkeypatch, caplog):
    monkeypatch.setenv(ALLOWED, "127.0.0.1")
    monkeypatch.setattr(recorder_process, "WAIT_S", 3.0)
    with receiver(statuses=[503]) as room:
        row, spec, journal = sweep({"webhook": room.url})
        with Recorder(home, row.id, spec, journal) as recorder:
            pass
        assert "not all notifications are sent" in caplog.text
        room.statuses[:] = [200]  # the process that was left behind goes on
        deliveries = Deliveries(journal.store, "s")
        until(lambda: [delivery.state for delivery in deliveries.all()] == ["sent"])
        until(recorder._processes["notifications"].tend)
