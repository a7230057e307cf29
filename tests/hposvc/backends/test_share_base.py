"""Sweeps whose trials take turns on one base. If these fail, trials get other results than alone,
or one takes its neighbours along."""

from pathlib import Path

import pytest
from busy_sweeps import curves, most_at_once, run

from hposvc import spec as specs
from hposvc.errors import SpecError
from hposvc.events import Failed, Ordered, Reported
from hposvc.spec.user_code import import_and_check

TUNED = Path(__file__).parents[2] / "support" / "tuned.py"
FRAGILE = f"""
import os, signal, sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, {str(TUNED.parent)!r})
from tuned import Tuned


@dataclass(frozen=True)
class Fragile(Tuned):
    mark: str = ""
    signal: str = "SIGKILL"

    def scale_lr(self, progress):
        if progress >= 0.5 and not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.Signals[self.signal])
        return 1.0
"""
PBT = {"type": "pbt", "interval": 1, "mutate": {"lr": {}}}


def given(**sections):
    """Return the sections of a sweep of unlike adapters, four at once in a slot."""
    return {
        "trainable": f"{TUNED}:Tuned",
        "metric": {"name": "val/loss", "goal": "minimize"},
        "fidelity": {"max": 4},
        "parameters": {
            "lr": {"min": 1e-3, "max": 1e-1, "log": True},
            "rank": {"values": [1, 2, 4]},
            "targets": {"values": ["query", "query value", "*"]},
            "batch": {"values": [4, 8]},
            "kind": {"values": ["adamw", "sgd"]},
            "noise": 0.1,
        },
        "search": "random",
        "scheduler": "fifo",
        "trials": {"max": 6, "parallel": 4},
        "resources": {"cpus_per_worker": 1},
        "training": {"share_base": 4},
        "tracking": {"send_to": []},
        **sections,
    }


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.parametrize("scheduler", [{"type": "asha", "eta": 2}, "hyperband", PBT])
def test_schedulers_decide_over_trials_that_take_turns(home, scheduler):
    """ASHA and Hyperband stop some, and PBT copies adapters and moments."""
    together = run(home, given(scheduler=scheduler))
    assert most_at_once(together) == 4
    lengths = [max(curve) for curve in curves(together).values()]
    assert max(lengths) == 4
    assert (min(lengths) < 4) == (scheduler is not PBT)
    copied = [each for each in together if isinstance(each, Ordered) and each.order.parent]
    assert bool(copied) == (scheduler is PBT)


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_those_of_trials_alone(home, workers):
    resources = {"workers": workers, "cpus_per_worker": 0.5}
    together = run(home, given(resources=resources))
    alone = run(home, given(resources=resources, training={}, trials={"max": 6, "parallel": 1}))
    assert most_at_once(together) == 4
    assert curves(together) == curves(alone)


@pytest.mark.ray
@pytest.mark.long
def test_finalists_and_seeds_train_on_the_base_of_a_slot(home):
    sections = given(
        trials={"max": 4, "parallel": 4, "seeds": {"max": 2}}, finalists={"top": 1, "seeds": 2}
    )
    events = run(home, sections)
    assert most_at_once(events) == 4
    orders = {each.order.id: each.order for each in events if isinstance(each, Ordered)}
    names = [(order.trial, order.replicate) for order in orders.values()]
    assert len({*names}) == len(names) == 4 + 4 + 2  # each with two seeds, and the finalist's two
    last = [each for each in events if isinstance(each, Reported) and each.step == 4]
    assert {each.order for each in last} == {*orders}
    assert len({each.metrics["val/loss"] for each in last}) == len(last)


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.parametrize(("how", "cause"), [("SIGTERM", "preempt"), ("SIGKILL", "infra")])
def test_a_process_that_dies_sends_its_trials_back_to_their_checkpoints(home, tmp_path, how, cause):
    (tmp_path / "fragile.py").write_text(FRAGILE)
    parameters = {**given()["parameters"], "mark": str(tmp_path / "mark"), "signal": how}
    trainable = f"{tmp_path / 'fragile.py'}:Fragile"
    events = run(home, given(trainable=trainable, parameters=parameters))
    failures = [event for event in events if isinstance(event, Failed)]
    assert {failure.cause for failure in failures} == {cause}
    assert len({failure.trial for failure in failures}) == 4
    assert all(max(curve) == 4 for curve in curves(events).values())
    whole = run(home, given())
    assert curves(events) == curves(whole)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"engine": "local", "trials": {"max": 1}}, "engine local gives a process one trial"),
        ({"training": {"share_base": 0}}, r"training.share_base: is 0; give 1 or more"),
        (
            {"training": {"share_base": 4, "trials_per_process": 4}},
            "trials_per_process trains trials of one shape at once; leave one of the two out",
        ),
        (
            {"training": {"share_base": 4, "compile": "inductor"}},
            "torch.compile's graphs belong to one trial of a process",
        ),
        (
            {"training": {"share_base": 4, "strategy": "zero1"}, "resources": {"workers": 2}},
            "share a base with strategy single or ddp or fsdp",
        ),
        (
            {"training": {}, "parameters": {"training.share_base": {"values": [1, 8]}}},
            "applies to slots, not to a trial",
        ),
        (
            {"parameters": {"training.tf32": {"values": [True, False]}}},
            "training.tf32: is one for all trials of a process",
        ),
    ],
)
def test_what_cannot_share_a_base_is_refused_before_it_starts(sections, said):
    with pytest.raises(SpecError, match=said):
        specs.load(given(**sections))


def test_a_function_is_refused(tmp_path):
    code = "def train(worker):\n    worker.report(1, {'val/loss': 1.0})\n"
    (tmp_path / "train.py").write_text(code)
    spec = specs.load(given(trainable=f"{tmp_path / 'train.py'}:train"))
    with pytest.raises(SpecError, match=r"training.share_base: is 4, but .* is no Task"):
        import_and_check(spec)
