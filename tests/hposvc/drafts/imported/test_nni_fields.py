"""Each field of NNI's configuration is imported or named.

NNI brings a Node.js of 190 MB, so it is not among our packages: test_nni_installed.py installs it
and runs this file.
"""

import copy
import dataclasses

import pytest
from foreign_specs import PAGE, fate, places, spec_of, written

pytest.importorskip("nni", exc_type=ImportError)
from nni.common.hpo_utils.validation import common_search_space_types, validate_search_space
from nni.experiment.config import ExperimentConfig, LocalConfig
from nni.experiment.config.algorithm import _AlgorithmConfig
from nni.experiment.config.shared_storage import SharedStorageConfig
from nni.experiment.config.utils import camel_case

LOCAL = {
    "platform": "local",
    "trialCommand": "python3 train.py",
    "trialCodeDirectory": ".",
    "trialGpuNumber": 1,
    "nniManagerIp": "127.0.0.1",
    "debug": True,
    "useActiveGpu": False,
    "maxTrialNumberPerGpu": 2,
    "gpuIndices": [0],
    "reuseMode": True,
}
STORAGE = {"localMountPoint": "/x", "remoteMountPoint": "/x", "localMounted": "nomount"}
AZURE = {"storageAccountName": "x", "storageAccountKey": "x", "containerName": "x"}
OWN = {"className": "own.Own", "codeDirectory": ".", "classArgs": {"depth": 3}}
# Each kind of range is called as itself.
SPACE = {
    "choice": {"_type": "choice", "_value": [1, 2]},
    "randint": {"_type": "randint", "_value": [1, 9]},
    "uniform": {"_type": "uniform", "_value": [1, 9]},
    "quniform": {"_type": "quniform", "_value": [1, 9, 1]},
    "loguniform": {"_type": "loguniform", "_value": [1, 9]},
    "qloguniform": {"_type": "qloguniform", "_value": [1, 9, 1]},
    "normal": {"_type": "normal", "_value": [1, 9]},
    "qnormal": {"_type": "qnormal", "_value": [1, 9, 1]},
    "lognormal": {"_type": "lognormal", "_value": [1, 2]},
    "qlognormal": {"_type": "qlognormal", "_value": [1, 2, 1]},
}
EVERYTHING = {
    "experimentName": "digits",
    "experimentType": "hpo",
    "searchSpace": SPACE,
    "trialCommand": "python3 train.py",
    "trialCodeDirectory": ".",
    "trialConcurrency": 2,
    "trialGpuNumber": 1,
    "maxExperimentDuration": "2H",
    "maxTrialNumber": 9,
    "maxTrialDuration": "1h",
    "nniManagerIp": "127.0.0.1",
    "useAnnotation": False,
    "debug": True,
    "logLevel": "debug",
    "experimentWorkingDirectory": "experiments",
    "tunerGpuIndices": [0],
    "tuner": {"name": "Random", "classArgs": {"optimize_mode": "minimize", "seed": 3}},
    "assessor": {"name": "Medianstop", "classArgs": {"start_step": 5}},
    "trainingService": LOCAL,
    "sharedStorage": {**STORAGE, "storageType": "NFS", "nfsServer": "x", "exportedDirectory": "x"},
}
OTHERS = [
    {"tuner": OWN, "assessor": OWN},
    {"tuner": None, "advisor": {"name": "BOHB", "classArgs": {"optimize_mode": "minimize"}}},
    {"tuner": None, "advisor": OWN},
    {"sharedStorage": {**STORAGE, **AZURE, "storageType": "AzureBlob"}},
    {"searchSpace": None, "searchSpaceFile": "space.json"},
]
DOCUMENTS = [EVERYTHING] + [
    {key: value for key, value in {**EVERYTHING, **other}.items() if value is not None}
    for other in OTHERS
]
KEPT = ("searchSpace", "searchSpaceFile", "trialCommand", "trialConcurrency", "trialGpuNumber")
KEPT += ("tuner", "advisor", "trainingService")
INNER = {
    "tuner": _AlgorithmConfig,
    "assessor": _AlgorithmConfig,
    "advisor": _AlgorithmConfig,
    "trainingService": LocalConfig,
    "sharedStorage": SharedStorageConfig,
}


def names(config):
    return [camel_case(field.name) for field in dataclasses.fields(config)]


KEYS = sorted(
    {
        *names(ExperimentConfig),
        *(f"{section}.{name}" for section, config in INNER.items() for name in names(config)),
        *(f"searchSpace.{kind}" for kind in common_search_space_types),
    }
)


def specs():
    """Return a spec for each key, with the key's path in it."""
    found = {}
    for document in DOCUMENTS:
        for path in places(document):
            found.setdefault(written(path), (spec_of(path, document, KEPT), path))
    return found


SPECS = specs()


def is_free(key):
    """Return whether NNI leaves the name to an algorithm, or it is that of a range's parts."""
    return ".classArgs." in key or key.endswith(("._type", "._value"))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where NNI may write its own settings, and finds the file of a space."""
    (tmp_path / "space.json").write_text('{"x": {"_type": "uniform", "_value": [0, 1]}}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


def validate(experiment):
    ExperimentConfig(**copy.deepcopy(experiment)).validate()
    validate_search_space(experiment.get("searchSpace", {}), raise_exception=True)


def test_there_is_a_spec_for_each_field():
    assert {key for key in SPECS if not is_free(key)} == {*KEYS}
    assert f" | {len(KEYS)} |\n" in PAGE.read_text()


@pytest.mark.parametrize("key", KEYS)
def test_a_field_is_carried_over_or_named(key):
    spec, path = SPECS[key]
    validate(spec)
    assert fate("nni", spec, path) != "vanished"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_nni_takes_whole_experiments_and_no_misspelt_one(document):
    validate(document)
    with pytest.raises(AttributeError, match="maxtrialnumbr"):
        validate({**document, "maxTrialNumbr": 3})
