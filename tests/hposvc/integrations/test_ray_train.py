"""Trainers of Ray Train as sweeps. If these fail, a setting of the trainer is lost in silence."""

from functools import partial
from pathlib import Path

import pytest

import hposvc
from hposvc.errors import SpecError

train = pytest.importorskip("ray.train")
tune = pytest.importorskip("ray.tune")
torch_trainer = pytest.importorskip("ray.train.torch")

SECTIONS = {"metric": {"name": "loss", "goal": "minimize"}, "trials": {"max": 2}}
LR = {"lr": {"min": 1e-4, "max": 0.1, "log": True}}


def loop(config):
    """Report what of the configuration came here."""
    train.report({"loss": config["lr"], "layers": len(config["layers"]), "lit": config["on"]()})


def one():
    return 1.0


def trainer(loop=loop, config=None, workers=1, run=None, datasets=None, **scaling):
    return torch_trainer.TorchTrainer(
        loop,
        train_loop_config=config,
        scaling_config=train.ScalingConfig(num_workers=workers, **scaling),
        run_config=run,
        datasets=datasets,
    )


def sections(trainer, home=Path("unused"), **given):
    return hposvc.ray.from_trainer(trainer, **{"parameters": LR, **given}).sections(home)


def test_settings_become_sections(tmp_path):
    run = train.RunConfig(
        name="mine",
        storage_path=str(tmp_path),
        failure_config=train.FailureConfig(max_failures=2),
        checkpoint_config=train.CheckpointConfig(
            num_to_keep=3, checkpoint_score_attribute="acc", checkpoint_score_order="max"
        ),
        worker_runtime_env={"pip": ["einops"]},
    )
    needs = {"CPU": 2, "GPU": 1, "memory": 2**30, "disk": 1}
    labels = {"market": "spot"}
    made = sections(
        trainer(
            run=run,
            workers=2,
            use_gpu=True,
            resources_per_worker=needs,
            placement_strategy="SPREAD",
            label_selector=labels,
        )
    )
    assert made["resources"] == {
        "workers": 2,
        "cpus_per_worker": 2,
        "gpus_per_worker": 1,
        "memory_per_worker": 2**30,
        "custom": {"disk": 1},
        "labels": labels,
        "placement": "spread",
    }
    assert (made["name"], made["storage"]) == ("mine", str(tmp_path))
    retries = {"user_retries": 2, "infra_retries": 2, "preempt_retries": "unlimited"}
    assert made["failure"] == retries
    assert made["checkpoints"] == {"keep_best": 3}
    assert made["metric"] == {"name": "acc", "goal": "maximize"}
    assert made["environment"] == {"runtime_env": {"pip": ["einops"]}}
    assert made["trainable"] == f"{__name__}:loop"


def test_elastic_workers_are_a_span():
    assert sections(trainer(workers=(2, 8)))["resources"]["workers"] == {"min": 2, "max": 8}


def test_sections_that_are_given_take_the_trainers_place():
    made = sections(trainer(), resources={"workers": 4}, name="other")
    assert (made["resources"], made["name"]) == ({"workers": 4}, "other")


def test_what_no_parameter_can_hold_reaches_the_loop_all_the_same(tmp_path):
    config = {"lr": tune.loguniform(1e-4, 0.1), "layers": [8, 8], "on": one, "seed": 3}
    sweep = hposvc.ray.from_trainer(
        trainer(config=config), **SECTIONS, engine="local", tracking={"send_to": []}
    )
    result = sweep.run(tmp_path, progress=False)
    assert result.best.params.keys() == {"lr", "seed"}
    reported = result.trials
    assert set(reported["metrics.layers"]) == {2.0}
    assert set(reported["metrics.lit"]) == {1.0}


def test_a_nested_config_keeps_what_is_not_searched(tmp_path):
    seen = []
    lr = tune.loguniform(1e-4, 0.1)
    config = {"opt": {"lr": lr, "betas": (0.9, 0.99)}, "plain": {"a": 1}, "none": {}}
    sweep = hposvc.ray.from_trainer(trainer(seen.append, config))
    assert sweep.sections(tmp_path)["parameters"] == {"opt": {"lr": lr}}
    sweep._trainable({"opt": {"lr": 0.1}})
    assert seen == [{**config, "opt": {"lr": 0.1, "betas": (0.9, 0.99)}}]


def test_what_is_searched_of_a_group_leaves_the_rest_of_it(tmp_path):
    seen = []
    config = {"opt": {"lr": 1e-3, "betas": (0.9, 0.99), "wd": 0.1}}
    sweep = hposvc.ray.from_trainer(trainer(seen.append, config), parameters={"opt": LR})
    assert sweep.sections(tmp_path)["parameters"] == {"opt": LR}
    sweep._trainable({"opt": {"lr": 0.5}})
    assert seen == [{"opt": {"lr": 0.5, "betas": (0.9, 0.99), "wd": 0.1}}]


def test_rays_defaults_are_nobodys_wishes(tmp_path):
    made = sections(trainer(), tmp_path)
    assert made.keys() == {"parameters", "resources", "trainable"}
    assert sections(trainer(run=train.RunConfig(name="mine")), tmp_path)["name"] == "mine"


def test_tunes_param_space_is_read():
    made = sections(trainer(config={"lr": 1e-3}), parameters={"train_loop_config": LR})
    assert made["parameters"] == LR


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(trainer, use_tpu=True), "asks for TPUs"),
        (
            lambda: trainer(run=train.RunConfig(callbacks=[train.UserCallback()])),
            "UserCallback is called by Ray Train's controller",
        ),
        (lambda: loop, "is function; give a ray.train.torch.TorchTrainer"),
    ],
)
def test_what_has_no_place_in_a_trial_is_refused(make, message):
    with pytest.raises(SpecError, match=message):
        hposvc.ray.from_trainer(make(), parameters=LR)
