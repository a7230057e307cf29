import pytest
from printed import text_of
from simulated_sweeps import at_desk

from hposvc.events import Failed
from hposvc.journal.home import Home
from hposvc.journal.journal import SweepRow
from hposvc.open_sweep import Record
from hposvc.state.answers import Best
from hposvc.state.receipt import RequestReceipt
from hposvc.tracking.projection import EXPERIMENT
from hposvc.views.result import (
    best,
    describe_receipt,
    describe_waits,
    failures,
    mlflow,
    tracked_files,
)


def fail(desk, says):
    """Fail a new trial with a message, and return it."""
    order = desk.start()
    desk.happen(Failed(1.0, order.id, order.trial, "user", says))
    return desk.state.trials[order.trial]


def test_failures_are_told_by_their_last_line_and_not_all_of_them():
    desk = at_desk(scheduler="fifo")
    trials = [fail(desk, f"Traceback\nValueError: no {word}") for word in "abcdefgh"]
    text = text_of(failures("mine", trials))
    assert "8 failed" in text
    assert "t0005  ValueError: no e  → hposvc logs mine t0005" in text
    assert "t0006" not in text
    assert "… and 3 more; hposvc trials mine" in text


def test_failures_that_differ_by_a_value_are_told_once():
    desk = at_desk(scheduler="fifo")
    messages = ("Traceback\nValueError: 1", "KeyError: 'x'", "Traceback\nValueError: 2.5")
    lines = text_of(failures("mine", [fail(desk, message) for message in messages])).splitlines()
    assert [line.strip() for line in lines] == [
        "3 failed",
        "t0001 and 1 alike  ValueError: 1  → hposvc logs mine t0001",
        "t0002  KeyError: 'x'  → hposvc logs mine t0002",
    ]


ROW = SweepRow("mine-1", "mine", "demo", 0.0, {}, {})
PAGE = "/#/experiments/7/runs?viewStateShareKey=mine-1&workflowType=machine_learning"


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("sqlite:////home/mlflow.db", ["http://127.0.0.1:5000", "mlflow ui --backend-store-uri "]),
        ("http://me:secret@server:5000", ["http://***@server:5000"]),
    ],
)
def test_mlflow_is_opened_at_the_sweep_without_a_word_of_the_password(tmp_path, story, uri, said):
    record = Record(ROW, story.state, {EXPERIMENT: "7"}, "none", 0)
    text = "".join(text_of(part) for part in mlflow(record, Home(tmp_path, "", uri)))
    assert said[0] + PAGE in text
    assert all(words in text for words in said)
    assert "secret" not in text


def test_files_of_other_trackers_are_opened_by_a_line_that_can_be_copied(tmp_path, story):
    record, home = Record(ROW, story.state, {}, "none", 0), Home(tmp_path, "", "")
    assert tracked_files(record, home) == []
    folder = home.folder("mine-1", None)
    (folder / "tensorboard").mkdir(parents=True)
    (folder / "wandb").mkdir()
    (folder / "tracking.jsonl").touch()
    text = "".join(text_of(part) for part in tracked_files(record, home))
    assert f"JSON lines  {folder}/tracking.jsonl" in text
    assert f"TensorBoard tensorboard --logdir {folder}/tensorboard" in text
    assert f"cd {folder} && wandb sync --sync-all" in text


@pytest.mark.parametrize(
    ("answer", "trial", "said"),
    [
        (
            RequestReceipt("mine", "RUNNING", "alive", "host:7"),
            None,
            "(process 7 on host): mine ends",
        ),
        (
            RequestReceipt("mine", "RUNNING", "alive", "a:b:7"),
            "t0003",
            "(process 7 on a:b): t0003 ends",
        ),
        (RequestReceipt("mine", "STOPPED", "dead", "host:7"), None, "mine has ended: STOPPED"),
        (RequestReceipt("mine", "RUNNING", "dead", "host:7"), "t0003", "hposvc resume mine"),
    ],
)
def test_who_carries_a_request_out_is_said(answer, trial, said):
    assert said in describe_receipt(answer, "kill", trial)


def test_a_stopped_trial_ends_at_its_own_report_and_a_server_goes_on_with_what_has_ended():
    running = RequestReceipt("mine", "RUNNING", "alive", "host:7")
    assert describe_receipt(running, "stop", "t1").endswith("t1 ends when it next reports")
    ended = RequestReceipt("mine", "COMPLETED", "none", "")
    assert "when you resume it: hposvc resume mine" in describe_receipt(ended, "extend", None)
    said = describe_receipt(ended, "extend", None, starts_drivers=True)
    assert said == "mine has its new limits; its server goes on with mine"


@pytest.mark.parametrize(("waited_s", "said"), [(4.0, False), (6.0, True), (600.0, True)])
def test_waiting_for_proposals_is_told_where_it_cost_much(story, waited_s, said):
    """A slow searcher is mentioned, a slow start is not."""
    story.begin("t0001", 1)
    story.state.waits, story.state.waited_s, story.state.elapsed_s = 1, waited_s, 100.0
    assert ("1 of 1 trials waited for a proposal" in describe_waits(story.state)) == said
    story.state.elapsed_s = 100_000.0
    assert not describe_waits(story.state)


def test_a_front_has_each_checkpoint_on_a_line_to_copy(two):
    long = "/home/somebody/" + "x" * 150
    front = [
        Best("s", trial, params, values, {}, 3, True, checkpoint, None, False, None)
        for trial, params, values, checkpoint in (
            ("t0001", {"lr": 0.1}, [0.1, 9.0], long),
            ("t0002", {"lr": 0.2}, [0.2, 8.0], None),
        )
    ]
    lines = text_of(best(front, two.state.spec)).splitlines()
    assert [line for line in lines if long in line] == [f"t0001       {long}"]
    assert any("0.2" in line and "8" in line and "t0002" in line for line in lines)
