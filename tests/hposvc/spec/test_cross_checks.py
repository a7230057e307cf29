"""Sections of a spec that do not go together."""

import pytest
from simulated_sweeps import make_spec

from hposvc import spec as specs
from hposvc.schedulers.hyperband import Bohb, Hyperband
from hposvc.schedulers.scheduler import Plan
from hposvc.spec import SpecError
from searchers.methods import METHODS, load

TASK = {
    "trainable": "toys:steady",
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 3},
    "parameters": {"lr": {"min": 0.1, "max": 0.2}},
    "trials": {"max": 2},
}


def test_bohb_without_a_model_is_refused():
    model_free = [name for name in METHODS if not load(name).uses_results]
    assert {"random", "sobol", "grid"} <= {*model_free}
    for method in model_free:
        with pytest.raises(SpecError, match=f"{method}, but scheduler bohb is .* choose gp, tpe"):
            make_spec(scheduler="bohb", search=method)
    assert make_spec(scheduler="bohb", search="auto").scheduler.name == "bohb"
    assert (
        Bohb(eta=4).scheduler(Plan(1, 16)).shapes == Hyperband(eta=4).scheduler(Plan(1, 16)).shapes
    )


PBT = {"type": "pbt", "interval": 3, "mutate": {"lr": {}}}


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"limits": ["speed >= 1"]}, "with limits nothing is repeated; leave out one of the two"),
        ({"scheduler": PBT}, "scheduler pbt changes values of trials, so none would be repeated"),
        (
            {"metric": None, "metrics": [{"name": n, "goal": "minimize"} for n in ("loss", "ms")]},
            "with 2 metrics nothing is repeated; remove it",
        ),
    ],
)
def test_repeats_that_would_have_no_effect_are_refused(sections, why):
    search = {"method": "gp", "repeats": True}
    with pytest.raises(SpecError, match=rf"search\.repeats: is true, but {why}"):
        make_spec(search=search, **sections)
    assert make_spec(search={**search, "repeats": False}, **sections)
    assert make_spec(search=search)


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"training": {"gradient_compression": "bf16"}}, "training.gradient_compression: is bf16"),
        (
            {"parameters": {"training.gradient_compression": {"values": ["none", "bf16"]}}},
            "gradient_compression: has bf16",
        ),
    ],
)
def test_bf16_gradients_without_gpus_are_refused_before_a_trial_fails_for_them(sections, key):
    def load(**resources):
        return specs.load({**TASK, **sections, "resources": resources})

    with pytest.raises(SpecError, match=rf"{key}, but only NCCL adds bf16 up, on GPUs"):
        load(workers=2)
    assert load(workers=2, gpus_per_worker=1)
