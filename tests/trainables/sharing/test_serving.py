"""A coordinator and a real process whose trials take turns on one base, without Ray.

If these fail, trials of a sweep with training.share_base get others' results, or take others along.
"""

import math
from pathlib import Path

import pytest
import torch
import two_ranks
from busy_slot import BusySlot, losses
from safetensors.torch import load_file
from tuned import Tuned

from trainables import Worker
from trainables.checkpoints.loading import load_weights
from trainables.link import Report
from trainables.lora.peft import save_peft
from trainables.runtime.assignment import log_file
from trainables.runtime.coordinator import Coordinator
from trainables.sharing.lane_coordinators import LaneCoordinators
from trainables.training import Training

SEED, LANES = 5, 3
UNLIKE = (
    {"rank": 4, "lr": 0.02, "dropout": 0.2, "noise": 0.1},
    {"rank": 1, "alpha": 8.0, "targets": "query", "batch": 5, "noise": 0.1},
    {"kind": "sgd", "targets": "words value", "whole": "head", "lr": 0.1},
    {"batch": 16, "whole": "norm head", "dropout": 0.4},
    {"rank": 3, "targets": "*", "lr": 0.003},
)


class SharedSlot(BusySlot):
    """The process of a slot whose orders take turns."""

    @staticmethod
    def lead(place, say):
        return LaneCoordinators(place.training.share_base, place.world_size, say, place.stall_s)


class PlainSlot(BusySlot):
    """A slot whose orders run one after the other."""

    @staticmethod
    def lead(place, say):
        return Coordinator(place.world_size, say, place.stall_s)


ALONE = {"world_size": 1, "training": Training()}
TUNED = {"trainable": "tuned:Tuned", "metrics": ("val/loss",), "seed": SEED}


def started(folder, lanes=LANES, **changes):
    """Start a slot of three trials that take turns."""
    training = Training(share_base=lanes)
    given = {**TUNED, "training": training, "world_size": 1, **changes}
    return two_ranks.started(folder, kind=SharedSlot, **given)


@pytest.fixture(scope="module")
def slot(tmp_path_factory):
    """A slot for many tests."""
    with started(tmp_path_factory.mktemp("slot")) as slot:
        yield slot


def alone(order, params):
    """Return the validation losses of the same trial in a process of its own."""
    worker = Worker.alone(until=3, seed=SEED * 1_000_003 + order)
    Tuned(**params).train(worker)
    return losses(worker.reports)


def test_unlike_trials_come_to_the_bits_that_they_come_to_alone(slot):
    orders = [slot.start(params) for params in UNLIKE[:LANES]]
    results = slot.finish(*orders)
    orders += [slot.start(params) for params in UNLIKE[LANES:]]
    results += slot.finish(*orders[LANES:])
    for (reports, end), order, params in zip(results, orders, UNLIKE, strict=True):
        assert (end.kind, end.clean, end.leaks) == ("ended", True, ())
        assert losses(reports) == alone(order, params)
        assert reports[-1].checkpoint is not None


def test_a_trial_is_stopped_at_its_milestone_and_goes_on_in_another_order(slot):
    first = slot.start(UNLIKE[0], milestones=(1,))
    other = slot.start(UNLIKE[1], until=3)
    (stopped, end), (whole, _) = slot.finish(first, other, stops=[(first, 1)])
    assert ([report.step for report in stopped], end.kind) == ([1], "ended")
    assert losses(whole) == alone(other, UNLIKE[1])
    again = slot.start(UNLIKE[0], start=stopped[0].checkpoint)
    [(rest, end)] = slot.finish(again)
    assert ([report.step for report in rest], end.kind) == ([2, 3], "ended")


@pytest.mark.parametrize("step", [1, 2])
def test_trials_of_a_process_that_is_killed_go_on_in_slots_of_their_own(step, tmp_path):
    """Wherever each of them is when the first one has made this step."""
    with started(tmp_path / "shared") as slot:
        orders = [slot.start(params) for params in UNLIKE[:LANES]]
        before, saved = {order: {} for order in orders}, {}
        while step not in before[orders[0]] or orders[0] not in saved:
            message = slot.next_message()
            if isinstance(message, Report):
                before[message.order][message.step] = message.metrics["val/loss"]
            made = getattr(message, "checkpoint", None) or getattr(message, "saved", None)
            if made is not None:
                saved[message.order] = made
        slot.ranks[0].kill()
    with two_ranks.started(tmp_path / "own", kind=PlainSlot, **{**TUNED, **ALONE}) as slot:
        for order, params in zip(orders, UNLIKE, strict=False):
            kept = saved.get(order)
            slot.number = order - 1  # the trial's, which its seed follows from
            [(rest, end)] = slot.finish(slot.start(params, start=kept))
            assert end.kind == "ended"
            values = [before[order][step] for step in range(1, 1 + (kept.step if kept else 0))]
            assert values + losses(rest) == alone(order, params)


def test_passes_made_as_one_come_to_the_losses_of_trials_alone(tmp_path):
    """Up to rounding, also if a trial raises or diverges, and others move in."""
    training = Training(share_base=LANES, joint_passes=True)
    with started(tmp_path, training=training) as slot:
        chosen = {"fails_at": 5}, {"lr": math.inf}, *UNLIKE
        orders = [slot.start(params) for params in chosen[:LANES]]
        results = slot.finish(*orders, later=chosen[LANES:])
        logs = [log_file(slot.folder, f"t{each:04}", each, 0) for each in range(1, 8)]
        assert not [log for log in logs if "made alone" in log.read_text()]
    assert [end.kind for _, end in results] == ["user", *["ended"] * 6]
    for order, ((reports, _), params) in enumerate(zip(results, chosen, strict=True), 1):
        if params in UNLIKE:
            assert losses(reports) == pytest.approx(alone(order, params), rel=1e-5)


def test_a_trial_that_raises_or_diverges_leaves_its_neighbours_their_bits(slot):
    chosen = UNLIKE[0], {"fails_at": 5}, {"lr": math.inf}
    orders = [slot.start(params) for params in chosen]
    (good, well), (_, raised), (diverged, _) = slot.finish(*orders)
    assert (well.kind, losses(good)) == ("ended", alone(orders[0], UNLIKE[0]))
    assert (raised.kind, raised.clean) == ("user", True)
    assert "this trial gives up" in raised.message
    assert all(map(math.isnan, losses(diverged)))


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_ranks_have_their_turns_in_one_order(strategy, tmp_path):
    """The same as in a slot whose orders run one after the other."""
    chosen = ({**UNLIKE[0], "noise": 0.0}, UNLIKE[1], {"lr": 0.05})
    with two_ranks.started(
        tmp_path / "alone", kind=PlainSlot, training=Training(strategy), **TUNED
    ) as plain:
        expected = [losses(plain.finish(plain.start(params))[0][0]) for params in chosen]
    training = Training(strategy, share_base=2)
    with two_ranks.started(tmp_path, kind=SharedSlot, training=training, **TUNED) as slot:
        results = slot.finish(*[slot.start(params) for params in chosen[:2]])
        results += slot.finish(slot.start(chosen[2]))
    assert [end.kind for _, end in results] == ["ended"] * 3
    assert [losses(reports) for reports, _ in results] == expected


def test_an_order_that_fails_on_one_rank_ends_on_all(tmp_path):
    """The other rank waits for its report, and has to learn of the failure."""
    training = Training("ddp", share_base=2)
    with two_ranks.started(tmp_path, kind=SharedSlot, training=training, **TUNED) as slot:
        [(_, end)] = slot.finish(slot.start({"mute": True}))
        assert (end.kind, end.clean) == ("user", True)
        assert "val/loss" in end.message
        results = slot.finish(*[slot.start(params) for params in UNLIKE[1:3]])
    assert [(end.kind, end.clean) for _, end in results] == [("ended", True)] * 2


def test_fewer_trials_share_a_slot_whose_memory_is_short(tmp_path):
    """One trial ends, to be tried again; the others' results are those of trials alone."""
    with started(tmp_path) as slot:
        orders = [slot.start({**params, "crowd": 2}) for params in UNLIKE[:LANES]]
        results = slot.finish(*orders, later=[{**UNLIKE[3], "crowd": 2}])
    short = [end for _, end in results if end.kind != "ended"]
    assert [end.kind for end in short] == ["collateral"]
    assert "3 trials at once did not fit into memory; from now on 2" in short[0].message
    for order, ((reports, end), params) in enumerate(zip(results, UNLIKE, strict=False), 1):
        if end.kind == "ended":
            assert losses(reports) == alone(order, params)


def test_a_checkpoint_is_that_of_a_trial_alone_and_becomes_a_file_of_peft(slot, tmp_path):
    params = {"rank": 3, "targets": "query value"}
    others = [slot.start(params) for params in UNLIKE[:2]]
    order = slot.start(params)
    *_, (reports, _) = slot.finish(*others, order)
    model = load_weights(Tuned(**params).build_model(), Path(reports[-1].checkpoint.path))
    found = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    worker = Worker.alone(until=3, seed=SEED * 1_000_003 + order, folder=tmp_path)
    Tuned(**params).train(worker)
    kept = Path(worker.reports[-1].checkpoint.path)
    lone = dict(load_weights(Tuned(**params).build_model(), kept).named_parameters())
    assert all(torch.equal(weight, lone[name]) for name, weight in found.items())
    written = load_file(save_peft(model, tmp_path / "peft") / "adapter_model.safetensors")
    assert {tuple(weight.shape) for weight in written.values()} == {(3, 24), (24, 3)}


def test_each_trial_prints_into_its_own_log(slot):
    orders = [slot.start({"says": name}) for name in ("red", "blue")]
    slot.finish(*orders)
    for order, name, other in zip(orders, ("red", "blue"), ("blue", "red"), strict=True):
        text = log_file(slot.folder, f"t{order:04}", order, 0).read_text()
        assert text.count(f"batch of {name}") == 12
        assert other not in text


def test_trials_without_frozen_weights_are_refused(slot):
    [(_, end)] = slot.finish(slot.start({"targets": "all"}))
    assert end.kind == "user"
    assert "has no frozen weights to share; train adapters" in end.message
