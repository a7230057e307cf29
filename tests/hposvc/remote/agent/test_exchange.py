"""What an agent sends is what the server reads."""

import json
import math

import pytest

from hposvc.server.routes.agents import TellBody
from hposvc.text import spelled
from trainables.dataset import DataSet
from trainables.link import CheckpointSaved, DataDeclared, Report, Suggestion
from trainables.runtime.assignment import Outcome
from trainables.runtime.wire import Beat, OrderPlaced
from trainables.storage.checkpoint import Saved

SAVED = Saved(3, "/sweep/checkpoints/t0001/7-3.5", "0" * 64, 10, within=5)
MESSAGES = (
    Beat(7),
    Beat(7, 0.25),
    OrderPlaced(7, "NVIDIA H200 + NVIDIA A100", "a + b", "processors (no RAPL)"),
    Report(7, 3, {"loss": 0.25}, SAVED, {"note": "'good' (str)"}, judged=False),
    Report(7, 4, {"loss": math.nan, "high": math.inf, "low": -math.inf}),
    Report(7, 5, {"loss": 0.25}, energy_kwh=0.5),
    CheckpointSaved(7, SAVED),
    DataDeclared(7, (DataSet("a", "training", 9, "d", "/data"), DataSet("b", "validation", None))),
    Suggestion(7, "lr", 0.5, {"min": 0.1, "max": 1, "log": True}),
    Suggestion(7, "late", None, {"values": [None, 1]}),
    Outcome(7, "preempt", energy_kwh=1.5),
    Outcome(7, "ended", how="returned", unused=("lr",), warning="a step was told again"),
    Outcome(7, "oom", "it died", ("a thread runs on",), sweep_wide=True, clean=False, crashed=True),
)


@pytest.mark.parametrize("message", MESSAGES, ids=repr)
def test_a_message_is_read_as_it_was_sent(message):
    sent = json.dumps({"client_id": "a", "message": spelled(message)}, allow_nan=False)
    read = TellBody.model_validate(json.loads(sent)).message
    assert repr(read) == repr(message)  # nan equals nothing
