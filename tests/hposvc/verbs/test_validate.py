"""`hposvc validate`: the types and the plan of a spec."""

import json
import re

import pytest
from printed import text_of

from hposvc import spec as specs
from hposvc.verbs.validate import parameter_table, plan_table

SPEC = {
    "engine": {"type": "simulate", "curve": "a_module:curve"},
    "metric": {"name": "acc", "goal": "maximize", "target": 0.995},
    "fidelity": {"max": 27, "unit": "epoch"},
    "parameters": {
        "lr": {"min": 1e-5, "max": 0.1, "log": True},
        "layers": {"min": 1, "max": 3, "type": "int"},
        "dropout": {"min": 0.0, "max": 0.5, "step": 0.1},
        "optimizer": {"values": ["sgd", "adamw", None]},
        "momentum": {"min": 0.8, "max": 0.99, "when": {"optimizer": ["sgd", None]}},
        "many": {"values": list(range(100))},
        "decay": {"min": 0.0, "max": 0.1, "normal": {"mean": 0.01, "deviation": 0.02}},
        "loss": {"values": ["ce", "focal"], "weights": [3, 1]},
        "width": 64,
    },
    "scheduler": {"type": "asha", "eta": 3},
    "budget": {"wall": "2h"},
}


def test_every_kind_of_parameter_says_what_it_was_resolved_to():
    text = text_of(parameter_table(specs.load(SPEC)))
    for row in (
        r"lr +float +1e-5 to 0\.1 +log +–",
        r"layers +int +1 to 3 +linear +–",
        r"dropout +float +0 to 0\.5 by 0\.1 +linear",
        r"optimizer +choice +sgd, adamw, null +unordered",
        r"momentum +float +0\.8 to 0\.99 +linear +optimizer is sgd or null",
        r"many +choice +0, 1, .*, 11, … \(100\)",
        r"decay +float +0 to 0\.1; normal 0\.01 ± 0\.02 +linear",
        r"loss +choice +ce, focal; weights 3, 1 +unordered",
        r"width +constant +64",
    ):
        assert re.search(row, text), row


def test_the_plan_says_what_would_run():
    text = text_of(plan_table(specs.load(SPEC)))
    for row in (
        r"metric +maximize acc, until 0\.995",
        r"trials +as many as the budget allows; at once: as many as fit",
        r"a trial +up to 27 epoch; workers: 1, each with 1 CPU, 0 GPU",
        r"scheduler +asha \(eta: 3\), rungs at 2, 6, 18, 27",
        r"budget +2h of wall-clock time",
        r"runs +a_module:curve",
    ):
        assert re.search(row, text), row
    assert "rungs" not in text_of(plan_table(specs.load({**SPEC, "scheduler": "fifo"})))


def test_the_plan_says_what_is_trained_and_known_beside_the_search():
    beside = {
        "initial": [{"lr": 0.001}],
        "baseline": {"seeds": 3},
        "finalists": {"top": 2, "seeds": 4},
        "warm_start": {"from": ["digits-1a2b3c"], "top": 2},
        "limits": ["latency <= 20"],
        "budget": {"gpu_hours": 12, "cost": 50},
        "price": {"worker_hour": 0.2, "currency": "EUR"},
    }
    text = text_of(plan_table(specs.load({**SPEC, **beside})))
    for row in (
        r"limits +latency <= 20",
        r"tried first +1 given",
        r"baseline +the first of initial; trained 3 times more, with other seeds",
        r"learns from +digits-1a2b3c; their best 2 are tried first",
        r"finalists +the best 2, each trained again with 4 seeds",
        r"budget +12 GPU-hours, 50.00 EUR",
    ):
        assert re.search(row, text), row
    plain = text_of(plan_table(specs.load(SPEC)))
    assert not any(name in plain for name in ("limits", "tried first", "baseline", "finalists"))
    assert re.search(r"learns from +earlier sweeps like it, if there are any", plain)


@pytest.mark.parametrize(
    "changes", [{"warm_start": None}, {"search": "tpe"}, {"limits": ["latency <= 20"]}]
)
def test_the_plan_does_not_promise_what_no_earlier_sweep_can_give(changes):
    assert "learns from" not in text_of(plan_table(specs.load({**SPEC, **changes})))


def test_what_the_spec_declares_is_not_rounded():
    declared = {
        "a": {"min": 1.0, "max": 100.5},
        "b": {"min": 0.9, "max": 0.9999},
        "c": {"values": [0.99, 0.999, 0.9999]},
        "layers": {"min": 1, "max": 9},
        "d": {"min": 0.0, "max": 1.0, "when": {"layers": {"min": 3}}},
        "e": 0.12345,
    }
    text = text_of(parameter_table(specs.load({**SPEC, "parameters": declared})))
    for row in (
        r"a +float +1 to 100\.5 +linear",
        r"b +float +0\.9 to 0\.9999 +linear",
        r"c +choice +0\.99, 0\.999, 0\.9999 +unordered",
        r"d +float +0 to 1 +linear +layers is 3 to 9",
        r"e +constant +0\.12345",
    ):
        assert re.search(row, text), row


def test_the_table_says_what_shares_may_be():
    declared = {
        "mix": {
            "shares": ["web", "code"],
            "min": {"web": 0.1},
            "max": {"code": 0.5},
            "zeros": True,
        },
        "experts": {"shares": 2, "total": 64, "step": 4, "min": 8},
    }
    spec = specs.load({**SPEC, "parameters": declared})
    text = text_of(parameter_table(spec))
    for row in (
        r"mix\.web +share +0, or 0\.1 to 1 +of 1 with the others of mix",
        r"mix\.code +share +0 to 0\.5 +of 1 with the others of mix",
        r"experts\.s2 +share +8 to 64 by 4 +of 64 with the others of experts",
    ):
        assert re.search(row, text), row


def test_shares_are_described_for_programs(hposvc, spec):
    mix = {"shares": ["web", "code"], "max": {"web": 0.5}}
    given = f"parameters={json.dumps({'mix': mix, 'x': {'values': [1, 2]}})}"
    data = hposvc("validate", spec(), "--set", given, "-o", "json").data
    assert data["parameters"]["mix.web"] == {
        **{"type": "share", "low": 0.0, "high": 0.5, "step": None, "zeros": False},
        **{"shares": "mix", "total": 1.0, "when": {}},
    }


def test_validate_prints_types_and_plan(hposvc, spec):
    out = hposvc("validate", spec(), "--set", "scheduler=asha", "--set", "fidelity.max=9").out
    assert re.search(r"x +choice +1, 2, 3, 4, 5, 6 +ordered", out)
    assert re.search(r"scheduler +asha \(mode: promote\), rungs at 1, 3, 9", out)
    data = hposvc("validate", spec(), "-o", "json").data
    assert data["spec"]["name"] == "valley"
    assert data["parameters"]["x"]["type"] == "choice"
