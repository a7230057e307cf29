"""Each key of an experiment of Determined is imported or named, and its entrypoint translated."""

import pytest
from foreign_specs import convert, fate, places, spec_of, written

from hposvc import spec as our
from hposvc.spec.parsing.document import read_text

SAVES = {"save_experiment_best": 1, "save_trial_best": 2, "save_trial_latest": 3}
VARIABLES = {"cpu": ["A=1"], "cuda": ["A=2"], "rocm": ["A=3"], "gpu": ["A=4"]}
COUNTED = {"minval": 1, "maxval": 3, "count": 3}
EVERYTHING = {
    "name": "digits",
    "description": "how far it goes",
    "project": "vision",
    "workspace": "us",
    "labels": ["first"],
    "data": {"url": "x"},
    "debug": True,
    "entrypoint": "python3 train.py",
    "max_restarts": 2,
    "checkpoint_policy": "all",
    "records_per_epoch": 100,
    "scheduling_unit": 10,
    "perform_initial_validation": True,
    "min_checkpoint_period": {"batches": 10},
    "min_validation_period": {"batches": 10},
    "reproducibility": {"experiment_seed": 7},
    "searcher": {
        "name": "adaptive_asha",
        "metric": "acc",
        "smaller_is_better": False,
        "max_trials": 9,
        "max_length": {"batches": 1024},
        "max_concurrent_trials": 3,
        "max_rungs": 3,
        "divisor": 3,
        "mode": "aggressive",
        "bracket_rungs": [1, 2],
        "stop_once": True,
        "source_trial_id": 3,
    },
    # Each kind of hyperparameter is called as itself.
    "hyperparameters": {
        "const": {"type": "const", "val": 3},
        "categorical": {"type": "categorical", "vals": [1, 2]},
        "int": {"type": "int", **COUNTED},
        "double": {"type": "double", **COUNTED},
        "log": {"type": "log", "base": 2, **COUNTED},
    },
    "resources": {
        "slots_per_trial": 2,
        "max_slots": 4,
        "agent_label": "x",
        "native_parallel": False,
        "priority": 3,
        "resource_pool": "x",
        "shm_size": "1g",
        "slots": 2,
        "weight": 2,
        "devices": [{"host_path": "/dev/x", "container_path": "/dev/x", "mode": "mrw"}],
    },
    "environment": {
        "image": {"cpu": "x", "cuda": "x", "rocm": "x", "gpu": "x"},
        "environment_variables": VARIABLES,
        "ports": {"x": 80},
        "proxy_ports": [
            {
                "proxy_port": 80,
                "proxy_tcp": True,
                "unauthenticated": False,
                "default_service_id": True,
            }
        ],
        "force_pull_image": True,
        "registry_auth": {
            "username": "x",
            "password": "x",
            "auth": "x",
            "email": "x",
            "serveraddress": "x",
            "identitytoken": "x",
            "registrytoken": "x",
        },
        "add_capabilities": ["x"],
        "drop_capabilities": ["x"],
        "pod_spec": {"spec": {"containers": [{"name": "x"}]}},
    },
    "bind_mounts": [
        {"host_path": "/x", "container_path": "/x", "read_only": True, "propagation": "rslave"}
    ],
    "optimizations": {
        "aggregation_frequency": 2,
        "auto_tune_tensor_fusion": True,
        "average_aggregated_gradients": False,
        "average_training_metrics": False,
        "grad_updates_size_file": "x",
        "gradient_compression": True,
        "mixed_precision": "O1",
        "tensor_fusion_cycle_time": 4,
        "tensor_fusion_threshold": 32,
    },
    "profiling": {
        "enabled": True,
        "begin_on_batch": 1,
        "end_after_batch": 2,
        "sync_timings": False,
    },
    "pbs": {"slots_per_node": 2, "pbsbatch_args": ["x"]},
    "slurm": {"slots_per_node": 2, "gpu_type": "x", "sbatch_args": ["x"]},
    "security": {"kerberos": {"config_file": "x"}},
    "checkpoint_storage": {"type": "hdfs", "hdfs_url": "x", "hdfs_path": "/x", "user": "x"} | SAVES,
    "tensorboard_storage": {"type": "hdfs", "hdfs_url": "x", "hdfs_path": "/x", "user": "x"},
}
SHARED = {"host_path": "/x", "propagation": "private", "storage_path": "y", "container_path": "x"}
SHARED |= {"type": "shared_fs", "checkpoint_path": "y", "tensorboard_path": "y"}
S3 = {"type": "s3", "bucket": "x", "access_key": "x", "secret_key": "x", "endpoint_url": "x"}
OTHERS = [
    {"checkpoint_storage": {**S3, "prefix": "x"}, "tensorboard_storage": {**S3, "prefix": "x"}},
    {"checkpoint_storage": SHARED, "tensorboard_storage": SHARED},
    {
        "checkpoint_storage": {"type": "azure", "container": "x", "connection_string": "x"},
        "min_checkpoint_period": {"epochs": 1},
        "min_validation_period": {"epochs": 1},
    },
    {
        "checkpoint_storage": {
            "type": "azure",
            "container": "x",
            "account_url": "x",
            "credential": "x",
        },
        "min_checkpoint_period": {"records": 1},
        "min_validation_period": {"records": 1},
    },
    {
        "searcher": {
            "name": "async_halving",
            "metric": "acc",
            "num_rungs": 2,
            "max_length": {"epochs": 9},
            "max_trials": 9,
            "divisor": 3,
            "stop_once": False,
            "source_checkpoint_uuid": "x",
        }
    },
    *(
        {
            "searcher": {
                "name": "sync_halving",
                "metric": "acc",
                "num_rungs": 3,
                "max_length": {unit: 9},
                "budget": {unit: 90},
                "divisor": 3,
                "train_stragglers": False,
            }
        }
        for unit in ("batches", "records", "epochs")
    ),
    {"searcher": {"name": "custom", "metric": "acc", "unit": "batches"}},
]
DOCUMENTS = [EVERYTHING, *({**EVERYTHING, **other} for other in OTHERS)]
KEPT = ("name", "entrypoint", "searcher", "hyperparameters", "checkpoint_storage")
KEPT += ("reproducibility", "environment")


def specs():
    """Return a spec for each key, with the key's path in it."""
    found = {}
    for document in DOCUMENTS:
        for path in places(document):
            spec = spec_of(path, document, KEPT)
            if path[0] == "hyperparameters" and len(path) > 1:
                spec["hyperparameters"] = {path[1]: document["hyperparameters"][path[1]]}
            found.setdefault(written(path), (spec, path))
    return found


SPECS = specs()


@pytest.mark.parametrize("key", sorted(SPECS))
def test_a_key_is_carried_over_or_named(key):
    spec, path = SPECS[key]
    assert fate("determined", spec, path) != "vanished"


GRID = {"name": "grid", "metric": "acc", "max_length": {"epochs": 9}}


def test_a_grid_has_the_values_of_determined():
    counted = {"minval": -2, "maxval": 2}
    domains = {
        "int": {"type": "int", **counted, "count": 9},
        "double": {"type": "double", **counted, "count": 3},
        "log": {"type": "log", "base": 2, **counted, "count": 2},
        "middle": {"type": "double", **counted, "count": 1},
    }
    spec = convert("determined", {**EVERYTHING, "searcher": GRID, "hyperparameters": domains}).spec
    assert spec["search"] == "grid"
    assert spec["parameters"] == {
        "int": {"values": [-2, -1, 0, 1, 2]},
        "double": {"values": [-2.0, 0.0, 2.0]},
        "log": {"values": [0.25, 4.0]},
        "middle": 0.0,
    }
    assert spec["trials"]["max"] == 5 * 3 * 2
    assert spec["fidelity"] == {"unit": "epochs", "max": 9}
    assert (spec["seed"], spec["resources"]["workers"]) == (7, 2)


@pytest.mark.parametrize("domain", [{"minval": 1, "maxval": 2}, {"type": "float", "vals": [1]}])
def test_a_range_without_a_type_is_named(domain):
    made = convert("determined", {**EVERYTHING, "hyperparameters": {"x": domain}})
    assert made.spec["parameters"] == {}
    assert any(each.path[:2] == ("hyperparameters", "x") for each in made.lost)


TRAIN = ["python3", "train.py", "--data", "a b"]


def by(launcher):
    return ["python3", "-m", f"determined.launch.{launcher}"]


@pytest.mark.parametrize(
    ("entrypoint", "command", "said"),
    [
        (TRAIN, TRAIN, "launch: node"),
        ("python3 train.py", ["python3", "train.py"], "launch: node"),
        (by("torch_distributed") + TRAIN, TRAIN, "is left out"),
        ([*by("torch_distributed"), "--", *TRAIN], TRAIN, "is left out"),
        (["env", "A=1", *by("deepspeed"), *TRAIN], ["env", "A=1", *TRAIN], "is left out"),
        (by("horovod") + TRAIN, by("horovod") + TRAIN, "does not run here"),
    ],
)
def test_an_entrypoint_becomes_a_command(entrypoint, command, said):
    made = convert("determined", {**EVERYTHING, "entrypoint": entrypoint})
    our.load(read_text(made.text(), "spec"))
    assert made.spec["command"] == [*command, "${args}"]
    assert any(said in each.message for each in made.lost if each.path == ("entrypoint",))


def test_a_trial_class_is_named():
    made = convert("determined", {**EVERYTHING, "entrypoint": "model_def:MNist"})
    assert made.spec["trainable"] == "model_def:MNist"
    assert any("trial class" in each.message for each in made.lost)


@pytest.mark.parametrize(
    ("entrypoint", "text"),
    [
        ("cd src && python3 train.py", "cd src && python3 train.py ${args}"),
        ("A=${B} python3 train.py", "A=$${B} python3 train.py ${args}"),
        (
            "cd src && python3 -m determined.launch.torch_distributed -- python3 train.py",
            "cd src && python3 train.py ${args}",
        ),
    ],
)
def test_what_a_shell_has_to_read_is_read_by_a_shell(entrypoint, text):
    made = convert("determined", {**EVERYTHING, "entrypoint": entrypoint})
    our.load(read_text(made.text(), "spec"))
    assert made.spec["command"] == ["sh", "-c", text]
    assert any("where ${args} is" in each.message for each in made.lost)
