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
from hposvc.journal import database
from hposvc.journal.database import Unanswered
from hposvc.journal.home import Home
from hposvc.journal.journal import SweepRow
from hposvc.state.sweep import SweepState
from hposvc.tracking import notifications, recorder_process, webhook
from hposvc.tracking.notifications import ChannelSender, NotificationSender, follow
from hposvc.tracking.recorder_process import Recorder
from hposvc.tracking.sink import SinkSetting
from hposvc.tracking.webhook import NotSent

SLOW = {
    "engine": {"type": "simulate", "curve": "simulated_sweeps:slow"},
    "tracking": {"send_to": ["json_lines"]},
}
ALL = ["done", "failed", "new_best", {"plateau": 2}]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(notifications, "PAUSES_S", (0.0,))
    monkeypatch.setattr(notifications, "POLL_S", 0.01)


@pytest.fixture
def home(tmp_path):
    return Home.of(tmp_path / "home", {})


@pytest.fixture
def sweep(home, tmp_path):
    """Run a simulated sweep with these channels; return its setting."""

    def run(*channels, **sections):
        spec = make_spec(notify=list(channels), **{**SLOW, **sections})
        journal = home.journal()
        row = SweepRow("s", "sweep", "p", 1000.0, specs.dump(spec), {})
        journal.create(row)
        Lab(journal, tmp_path).run(spec)
        return SinkSetting(home, journal, row, spec)

    return run


class Post:
    """Takes messages, unless an error is due; the last one stays."""

    def __init__(self, *errors):
        self.sent, self.attempts, self.errors = [], 0, list(errors)

    def __call__(self, channel, message):
        self.attempts += 1
        error = self.errors.pop(0) if len(self.errors) > 1 else next(iter(self.errors), None)
        if error is not None:
            raise error
        self.sent.append((channel.title, message.what, message.id))
        return "ok"


def senders(setting, send):
    journal, row, channels = setting.journal, setting.sweep, setting.spec.notify
    return [
        ChannelSender(journal, row.id, number, channel, send)
        for number, channel in enumerate(channels)
    ]


def deliver(setting, send):
    """Deliver what is to be delivered, as after the end of a driver."""
    reading, writing = os.pipe()
    os.close(writing)
    assert follow(setting, senders(setting, send), reading)


def moments_of(setting):
    """Return the number of each event that somebody is told of."""
    events = list(setting.journal.read("s"))
    return [seq for seq, event in events if isinstance(event, Alerted | Finished)]


def test_each_moment_is_sent_once_to_each_channel_that_asks_for_it(sweep):
    setting = sweep(
        {"webhook": "https://a.example/x", "on": ALL},
        {"apprise": "${HOOK}"},
        {"apprise": "mailto://u:p@b.example", "on": ["failed"]},
    )
    post = Post()
    deliver(setting, post)
    told = [what for title, what, _ in post.sent if title == "webhook a.example"]
    events = [event for _, event in setting.journal.read("s")]
    assert told == [*(event.what for event in events if isinstance(event, Alerted)), "done"]
    assert {"new_best", "plateau"} <= set(told)
    assert [what for title, what, _ in post.sent if title == "apprise ${HOOK}"] == ["done"]
    assert len({message for *_, message in post.sent}) == len(post.sent)
    again = Post()
    deliver(setting, again)  # as `resume` does
    assert again.sent == []


def test_a_channel_that_is_away_is_tried_again_until_it_takes_all_in_their_order(sweep):
    setting = sweep({"webhook": "https://a.example/x", "on": ALL})
    post = Post(*[NotSent("HTTP 503", again=True)] * 5, None)
    deliver(setting, post)
    sequence = [int(message.split(".")[2]) for *_, message in post.sent]
    assert sequence == moments_of(setting)
    assert post.attempts == len(sequence) + 5


def test_a_channel_that_stays_away_is_given_up_and_that_is_said_without_the_address(
    sweep, monkeypatch, caplog
):
    monkeypatch.setattr(notifications, "PATIENCE_S", 0.1)
    setting = sweep({"webhook": "https://a.example/secret", "on": ALL})
    post = Post(NotSent("HTTP 503", again=True))
    deliver(setting, post)
    assert post.attempts > len(moments_of(setting))
    given_up = [text for text in caplog.messages if "was not told" in text]
    assert len(given_up) == len(moments_of(setting))
    assert given_up[-1] == "webhook a.example was not told of done: HTTP 503"


def test_pauses_double_to_five_minutes(monkeypatch):
    monkeypatch.undo()
    assert notifications.PAUSES_S[:4] == (1.0, 2.0, 4.0, 8.0)
    assert notifications.PAUSES_S[-2:] == (256.0, 300.0)


def test_a_refusal_for_good_is_not_repeated_and_keeps_no_other_message_back(sweep, caplog):
    setting = sweep({"webhook": "https://a.example/x", "on": ALL})
    post = Post(NotSent("HTTP 404", again=False), None)
    deliver(setting, post)
    assert post.attempts == len(moments_of(setting)) == len(post.sent) + 1
    assert "webhook a.example was not told of new_best: HTTP 404" in caplog.messages


def test_a_channel_that_is_away_delays_no_other(sweep):
    channels = [{"webhook": f"https://{name}.example/x", "on": ALL} for name in "ab"]
    setting, told, attempted = sweep(*channels), [], threading.Event()

    def send(channel, message):
        if channel.title == "webhook a.example":
            attempted.wait(60.0)  # until the other channel has all
            return "ok"
        told.append(message.what)
        if message.what == "done":
            attempted.set()
        return "ok"

    deliver(setting, send)
    assert len(told) == len(moments_of(setting)) > 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_death_between_sending_and_its_record_repeats_the_message_under_its_id(sweep):
    setting, post = sweep({"webhook": "https://a.example/x"}), Post()

    def send_and_die(channel, message):
        post(channel, message)
        raise KeyboardInterrupt

    (sender,) = senders(setting, send_and_die)
    reading, writing = os.pipe()
    os.close(writing)
    assert not follow(setting, [sender], reading)
    deliver(setting, post)
    first, second = post.sent
    assert first == second


def test_a_receiver_that_fails_hangs_and_answers_gets_every_moment(sweep, monkeypatch):
    monkeypatch.setattr(webhook, "LIMIT_S", 2.0)
    with receiver(statuses=[500, 503, 429, 200]) as room:
        setting = sweep({"webhook": room.url, "on": ALL, "secret": "${KEY}"})
        room.release = threading.Event()  # no answer in time
        hanging = threading.Thread(
            target=deliver, args=(setting, NotificationSender({"KEY": "sesame"}).send)
        )
        hanging.start()
        until(lambda: len(room.received) > 1)
        room.release.set()
        hanging.join()
        texts = [body["text"] for body in room.taken()]
        assert len(texts) == len(moments_of(setting))
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
        sender = NotificationSender({"HOOK": room.url.replace("http:", "json:")})
        deliver(sweep({"apprise": "${HOOK}"}), sender.send)
    (body,) = room.bodies
    assert body["title"].startswith("[hposvc] s: COMPLETED")


def test_an_error_that_nobody_foresaw_is_a_failed_attempt_without_its_text(sweep, caplog):
    setting = sweep({"webhook": "https://a.example/x"})
    post = Post(RuntimeError("https://a.example/secret"), None)
    deliver(setting, post)
    assert len(post.sent) == 1
    assert "webhook a.example: RuntimeError in hposvc itself" in caplog.messages
    assert "secret" not in caplog.text


def test_a_missing_variable_is_said_when_the_sweep_begins(sweep, home, caplog, monkeypatch):
    setting = sweep({"apprise": "${HOOK}"}, {"apprise": "${CHAT}"})
    variables = {"HOOK": "https://a.example/x"}
    recorder = Recorder(home, "s", setting.spec, setting.journal, variables)
    monkeypatch.setattr(recorder_process, "RestartedProcess", lambda title, start: None)
    recorder.__enter__()
    assert caplog.messages == [
        "s: apprise ${CHAT} will not be notified: CHAT is not set; export it, and resume"
    ]
    sender = NotificationSender(variables)
    assert [sender.has_all(channel) for channel in setting.spec.notify] == [True, False]


def test_the_journals_absence_is_waited_out(sweep, monkeypatch):
    monkeypatch.setattr(database, "RETRY_S", 0.0)
    setting, post = sweep({"webhook": "https://a.example/x"}), Post()
    trouble = iter([Unanswered("away")] * 4)

    def after_trouble(call):
        def ask(*arguments):
            if (error := next(trouble, None)) is not None:
                raise error
            return call(*arguments)

        return ask

    for name in ("read", "advance"):
        ask = after_trouble(getattr(setting.journal, name))
        monkeypatch.setattr(setting.journal, name, ask)
    deliver(setting, post)
    assert len(post.sent) == 1


@pytest.mark.full
@pytest.mark.long
def test_a_recorder_that_is_killed_anywhere_loses_no_moment(sweep, home, monkeypatch):
    """The process of each round is killed when the receiver has its message, or before."""
    monkeypatch.setattr(recorder_process, "FLUSH_S", 0.0)
    monkeypatch.setattr(recorder_process, "WAIT_S", 60.0)
    with receiver() as room:
        setting = sweep({"webhook": room.url, "on": ALL})
        wanted = len(moments_of(setting))
        recorder = Recorder(home, "s", setting.spec, setting.journal).__enter__()
        for number in range(2):
            room.release = threading.Event()

            def is_heard(number=number):
                recorder.on_events(SweepState(setting.spec), [])  # the driver goes on
                return len(room.received) > number

            until(is_heard)
            os.kill(recorder._processes["notifications"].pid, signal.SIGKILL)
            room.release.set()
        recorder.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        room.release = None
        with Recorder(home, "s", setting.spec, setting.journal):
            pass
        assert len(room.taken()) == wanted > 3
        # Killed twice by this test, and once by the interrupted driver, maybe amid a message.
        assert wanted + 2 <= len(room.received) <= wanted + 3
    log = (home.folder("s", None) / "logs" / "recorder.log").read_text()
    assert "secret-path" not in log


def test_a_sweep_does_not_wait_long_for_a_receiver_that_is_away(sweep, home, monkeypatch, caplog):
    monkeypatch.setattr(recorder_process, "WAIT_S", 3.0)
    with receiver(statuses=[503]) as room:
        setting = sweep({"webhook": room.url})
        with Recorder(home, "s", setting.spec, setting.journal) as recorder:
            pass
        assert "not all notifications are sent" in caplog.text
        room.statuses[:] = [200]  # the process that was left behind goes on
        until(recorder._processes["notifications"].tend)
        (last,) = moments_of(setting)[-1:]
        assert setting.journal.cursor("s", "notify-0") == last


def test_the_driver_says_what_a_channel_was_not_told(sweep, home, caplog):
    with receiver(statuses=[404], text="no such hook") as room:
        setting = sweep({"webhook": room.url})
        with Recorder(home, "s", setting.spec, setting.journal):
            pass
    said = "s: webhook 127.0.0.1 was not told of done: HTTP 404: no such hook"
    assert said in caplog.messages
    assert "secret-path" not in caplog.text
