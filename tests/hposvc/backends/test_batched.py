"""Sweeps whose slots train several trials at once. If these fail, their trials get other results
than alone, or one process that dies takes a sweep along."""

from pathlib import Path

import pytest
from engines import await_none, in_slots

from hposvc import api
from hposvc import spec as specs
from hposvc.events import Failed, Ordered, Reported
from hposvc.spec import SpecError

HERE = Path(__file__).parent
SMALL = HERE.parents[1] / "trainables" / "batched" / "small.py"
FRAGILE = f"""
import os, signal, sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, {str(SMALL.parent)!r})
from small import Small


@dataclass(frozen=True)
class Fragile(Small):
    mark: str = ""
    signal: str = "SIGKILL"

    def scale_lr(self, progress):
        if progress >= 0.5 and not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.Signals[self.signal])
        return 1.0
"""


def given(**sections):
    """A sweep of small trials, four at once in a slot."""
    return {
        "trainable": f"{SMALL}:Small",
        "metric": {"name": "val/loss", "goal": "minimize"},
        "fidelity": {"max": 4},
        "parameters": {
            "lr": {"min": 1e-3, "max": 1e-1, "log": True},
            "dropout": {"min": 0.0, "max": 0.5},
        },
        "search": "random",
        "scheduler": "fifo",
        "trials": {"max": 10, "parallel": 6},
        "resources": {"cpus_per_worker": 0.5},
        "training": {"batched": 4, "precision": "64-true"},
        **sections,
    }


def run(home, sections):
    sweeps = api.Sweeps.open(home)
    row = api.create(sweeps, specs.load(sections))
    api.drive(sweeps, row)
    assert api.status(sweeps, row.id)["state"] == "COMPLETED"
    events = [event for _, event in sweeps.journal.read(row.id)]
    await_none(lambda: in_slots(home))
    return events


def curves(events):
    found = {}
    for event in events:
        if isinstance(event, Reported):
            found.setdefault(event.trial, {})[event.step] = event.metrics["val/loss"]
    return found


def most_at_once(events):
    """Orders that were out at the same time."""
    out, most = set(), 0
    for event in events:
        if isinstance(event, Ordered):
            out.add(event.order.id)
        elif type(event).__name__ in ("Ended", "Failed"):
            out.discard(event.order)
        most = max(most, len(out))
    return most


@pytest.mark.ray
def test_trials_at_once_come_to_what_they_come_to_alone(home):
    together = run(home, given())
    alone = run(home, given(training={"precision": "64-true"}))
    assert 4 < most_at_once(together) <= 6
    found, wanted = curves(together), curves(alone)
    assert len(found) == len(wanted) == 10
    for trial, curve in wanted.items():
        assert found[trial] == pytest.approx(curve, rel=1e-12)


@pytest.mark.ray
def test_stopped_trials_make_room_for_others(home):
    events = run(home, given(scheduler={"type": "asha", "eta": 3}, trials={"max": 20}))
    lengths = sorted(max(curve) for curve in curves(events).values())
    assert len(lengths) == 20
    assert lengths[0] < 4 == lengths[-1]


@pytest.mark.ray
@pytest.mark.parametrize(("how", "cause"), [("SIGKILL", "infra"), ("SIGTERM", "preempt")])
def test_a_process_that_dies_sends_its_trials_back_to_their_checkpoints(home, tmp_path, how, cause):
    """And one that is told to end, as on a spot node, keeps them first: that is no failure."""
    (tmp_path / "fragile.py").write_text(FRAGILE)
    parameters = {**given()["parameters"], "mark": str(tmp_path / "mark"), "signal": how}
    sections = given(
        trainable=f"{tmp_path / 'fragile.py'}:Fragile",
        parameters=parameters,
        trials={"max": 3, "parallel": 3},
        resources={"cpus_per_worker": 1},
    )
    events = run(home, sections)
    failures = [event for event in events if isinstance(event, Failed)]
    assert failures
    assert {failure.cause for failure in failures} == {cause}
    assert all(max(curve) == 4 for curve in curves(events).values())
    later = [event.order for event in events if isinstance(event, Ordered)][3:]
    assert any(order.start is not None and order.first > 1 for order in later)


@pytest.mark.parametrize(
    ("trials", "batched", "settled"),
    [
        ({"max": 100}, True, 32),
        ({"max": 100, "parallel": 6}, True, 6),
        ({"max": 4, "parallel": 6}, True, 4),
        ({"max": 10}, True, 10),
        ({"max": 10}, False, 1),
        ({"max": 10}, 40, 40),
    ],
)
def test_true_stands_for_as_many_trials_as_the_sweep_has_at_once(trials, batched, settled):
    spec = specs.load(given(trials=trials, training={"batched": batched}))
    assert spec.training.batched == settled
    assert not isinstance(spec.training.batched, bool)
    assert specs.load(specs.dump(spec)) == spec


@pytest.mark.parametrize("batched", [-1, 1.5, "yes"])
def test_what_is_no_number_of_trials_is_refused(batched):
    with pytest.raises(SpecError, match=r"training.batched: is .*; give "):
        specs.load(given(training={"batched": batched}))


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"engine": "local", "trials": {"max": 1}}, "engine local gives a process one trial"),
        ({"engine": "tune"}, "engine tune gives a process one trial"),
        ({"resources": {"workers": 2}}, "trials that train at once have one worker each"),
        ({"failure": {"nan": "skip"}}, r"trials that train at once \(training.batched\) know stop"),
        ({"training": {"batched": 4, "ema": 0.9}}, "at once in one process, which know none"),
        ({"training": {"batched": 0}}, r"training.batched: is 0; give 1 or more"),
        (
            {"training": {}, "parameters": {"training.batched": {"values": [1, 8]}}},
            "is a matter of slots, not of a trial",
        ),
    ],
)
def test_what_cannot_train_at_once_is_refused_before_it_starts(sections, said):
    with pytest.raises(SpecError, match=said):
        specs.load(given(**sections))
