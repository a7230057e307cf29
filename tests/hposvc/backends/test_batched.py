"""Sweeps whose slots train several trials at once. If these fail, trials get other results than
alone, or a dying process takes the sweep with it."""

from pathlib import Path

import pytest
from busy_sweeps import curves, most_at_once, run

from hposvc import spec as specs
from hposvc.errors import SpecError
from hposvc.events import Failed, Ordered

SMALL = Path(__file__).parents[2] / "support" / "small.py"
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
    """Return the sections of a sweep of small trials, four at once in a slot."""
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
        "training": {"trials_per_process": 4, "precision": "64-true"},
        "tracking": {"send_to": []},
        **sections,
    }


@pytest.mark.ray
@pytest.mark.long
def test_trials_at_once_come_to_what_they_come_to_alone(home):
    # So many that some are left when the second slot is up, on a busy machine too.
    together = run(home, given(trials={"max": 60, "parallel": 6}))
    single = {"trials": {"max": 7, "parallel": 1}, "training": {"precision": "64-true"}}
    alone = run(home, given(**single))
    assert 4 < most_at_once(together) <= 6
    actual, expected = curves(together), curves(alone)
    assert len(expected) == 7
    actual = {trial: actual[trial] for trial in expected}
    for trial, curve in expected.items():
        assert actual[trial] == pytest.approx(curve, rel=1e-12)


@pytest.mark.ray
@pytest.mark.long
def test_stopped_trials_make_room_for_others(home):
    events = run(home, given(scheduler={"type": "asha", "eta": 2}, trials={"max": 9}))
    lengths = sorted(max(curve) for curve in curves(events).values())
    assert len(lengths) == 9
    assert lengths[0] < 4 == lengths[-1]


@pytest.mark.ray
@pytest.mark.parametrize(
    ("how", "cause"),
    [
        pytest.param("SIGTERM", "preempt", marks=pytest.mark.long),
        pytest.param("SIGKILL", "infra", marks=pytest.mark.full),
    ],
)
def test_a_process_that_dies_sends_its_trials_back_to_their_checkpoints(home, tmp_path, how, cause):
    """A process told to end, as on a spot node, first checkpoints its trials: no failure."""
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
    ("trials", "trials_per_process", "settled"),
    [
        ({"max": 100}, True, 32),
        ({"max": 100, "parallel": 6}, True, 6),
        ({"max": 4, "parallel": 6}, True, 4),
        ({"max": 10}, True, 10),
        ({"max": 10}, False, 1),
        ({"max": 10}, 40, 40),
    ],
)
def test_true_stands_for_as_many_trials_as_the_sweep_has_at_once(
    trials, trials_per_process, settled
):
    spec = specs.load(given(trials=trials, training={"trials_per_process": trials_per_process}))
    assert spec.training.trials_per_process == settled
    assert not isinstance(spec.training.trials_per_process, bool)
    assert specs.load(specs.dump(spec)) == spec


@pytest.mark.parametrize("trials_per_process", [-1, 1.5, "yes"])
def test_what_is_no_number_of_trials_is_refused(trials_per_process):
    with pytest.raises(SpecError, match=r"training.trials_per_process: is .*; give "):
        specs.load(given(training={"trials_per_process": trials_per_process}))


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"engine": "local", "trials": {"max": 1}}, "engine local gives a process one trial"),
        ({"resources": {"workers": 2}}, "trials that train at once have one worker each"),
        (
            {"failure": {"nan": "skip"}},
            r"trials that train at once \(training.trials_per_process\) know stop",
        ),
        (
            {"training": {"trials_per_process": 4, "ema": 0.9}},
            "at once in one process, which know none",
        ),
        (
            {"training": {"trials_per_process": 0}},
            r"training.trials_per_process: is 0; give 1 or more",
        ),
        (
            {"training": {}, "parameters": {"training.trials_per_process": {"values": [1, 8]}}},
            "applies to slots, not to a trial",
        ),
    ],
)
def test_what_cannot_train_at_once_is_refused_before_it_starts(sections, said):
    with pytest.raises(SpecError, match=said):
        specs.load(given(**sections))
