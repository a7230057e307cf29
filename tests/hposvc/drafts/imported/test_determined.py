"""Each key of Determined's schema of an experiment is imported or named; launchers are translated.

The schemas are those of Determined 0.21, the last release with any in its package.
"""

import pytest
from determined_schemas import EXPERIMENT, schemas, torch_distributed, violations
from foreign_specs import PAGE, convert, fate, places, spec_of, written
from hypothesis import given
from hypothesis import strategies as st

from hposvc import spec as our
from hposvc.drafts.imported.launchers import MODULE, without_launcher
from hposvc.spec.parsing.document import read_text

ROOT = EXPERIMENT.rpartition("/")[0]
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
    "data_layer": None,
    "internal": None,
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


def inner_schemas(schema):
    yield from (schemas[schema[key]] for key in ("$ref", "optionalRef") if key in schema)
    yield from schema.get("union", {}).get("items", ())
    yield from (schema[key] for key in ("then", "items") if isinstance(schema.get(key), dict))


def documented(schema, path=(), hidden=frozenset()):
    """Yield the keys of a schema, but those that it refuses."""
    hidden = hidden | {key for key, value in schema.get("properties", {}).items() if value is False}
    hidden = hidden | schema.get("disallowProperties", {}).keys()
    for inner in inner_schemas(schema):
        yield from documented(inner, path, hidden)
    for name, inner in schema.get("properties", {}).items():
        if name not in hidden:
            yield (*path, name)
            if name != "hyperparameters" and isinstance(inner, dict):
                yield from documented(inner, (*path, name))


def all_documented():
    yield from documented(schemas[EXPERIMENT])
    for kind in EVERYTHING["hyperparameters"]:
        yield ("hyperparameters", kind)
        schema = schemas[f"{ROOT}/hyperparameter-{kind}.json"]
        yield from documented(schema, ("hyperparameters", kind))


KEYS = sorted({written(path) for path in all_documented()})


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
FREE = ("data.", "environment.ports.", "environment.pod_spec.spec.containers.", "searcher.max_le")


def test_there_is_a_spec_for_each_key_of_the_schema():
    ours = {key for key in SPECS if not key.startswith(FREE)}
    assert ours | {"searcher.max_length"} == {*KEYS}
    assert f"Determined {len(KEYS)}" in PAGE.read_text()


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_the_schema_is_carried_over_or_named(key):
    spec, path = SPECS[key]
    assert violations(spec) == []
    if key in ("data_layer", "internal"):
        return  # the schema takes nothing but null
    assert fate("determined", spec, path) != "vanished"


def test_halving_without_brackets():
    spec = convert("determined", {**EVERYTHING, **OTHERS[4]}).spec
    assert spec["fidelity"] == {"unit": "epochs", "min": 3, "max": 9}
    assert spec["scheduler"] == {"type": "asha", "eta": 3, "mode": "promote"}
    assert spec["seed"] == 7


TRAIN = ["python3", "train.py", "--data", "d"]
ONE = ["env", "WORLD_SIZE=${WORLD_SIZE}"]
HOROVOD = ["horovodrun", "-np", "${WORLD_SIZE}"]


def by(launcher):
    return ["python3", "-m", f"determined.launch.{launcher}"]


@pytest.mark.parametrize(
    ("slots", "entrypoint", "launch", "command"),
    [
        (2, by("torch_distributed") + TRAIN, "rank", TRAIN),
        (2, [*by("torch_distributed"), "--max_restarts", "1", "--", *TRAIN], "rank", TRAIN),
        (2, ["env", "A=1", *by("torch_distributed"), *TRAIN], "rank", ["env", "A=1", *TRAIN]),
        (2, [*by("deepspeed"), *TRAIN, "--", "x"], "rank", [*TRAIN, "--", "x"]),
        (2, [*by("torch_distributed"), *by("wrap_rank"), "RANK", "--", *TRAIN], "rank", TRAIN),
        (2, by("horovod") + TRAIN, "node", HOROVOD + TRAIN),
        (2, [*by("horovod"), "--gloo", "--", *TRAIN], "node", [*HOROVOD, "--gloo", *TRAIN]),
        (2, [*by("tensorflow"), "--port", "99", *TRAIN], "node", TRAIN),
        (2, ["torchrun", "train.py"], "node", ["torchrun", "train.py"]),
        (2, TRAIN, "rank", TRAIN),
    ],
)
def test_a_launcher_of_determined_is_translated(slots, entrypoint, launch, command):
    given = {**EVERYTHING, "entrypoint": entrypoint, "resources": {"slots_per_trial": slots}}
    assert violations(given) == []
    for entry in (entrypoint, " ".join(entrypoint)):
        made = convert("determined", {**given, "entrypoint": entry})
        our.load(read_text(made.text(), "spec"))
        assert made.spec["command"] == [*command, "${args}"]
        assert made.spec.get("launch", "rank") == launch
        assert made.spec["resources"] == {"workers": slots, "gpus_per_worker": 1}
        if entrypoint != TRAIN:
            said = "\n".join(each.message for each in made.lost if each.path == ("entrypoint",))
            assert "launch" in said


@given(st.lists(st.sampled_from([*TRAIN, "--", "--nnodes", "2"]), min_size=1, max_size=5))
def test_the_program_is_the_one_that_the_launcher_of_determined_starts(words):
    try:
        _, script = torch_distributed.parse_args([*words])
    except SystemExit:
        return  # it refuses these words
    started = without_launcher(["python3", "-m", f"{MODULE}torch_distributed", *words], 2)
    assert [*started.words] == script


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
    assert any("move ${args}" in each.message for each in made.lost)
