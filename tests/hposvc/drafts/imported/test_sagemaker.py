"""Tuning jobs of SageMaker become specs of ours."""

import json
import re

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from hposvc import spec as specs
from hposvc.drafts.imported import reading
from hposvc.spec.parsing.document import read_text

RANGES = {
    "ContinuousParameterRanges": [
        {"Name": "lr", "MinValue": "0.001", "MaxValue": "0.1", "ScalingType": "Logarithmic"},
        {"Name": "drop", "MinValue": "0", "MaxValue": "0.5", "ScalingType": "ReverseLogarithmic"},
    ],
    "IntegerParameterRanges": [{"Name": "layers", "MinValue": "1", "MaxValue": "9"}],
    "CategoricalParameterRanges": [{"Name": "opt", "Values": ["sgd", "1"]}],
    "AutoParameters": [{"Name": "other", "ValueHint": "3"}],
}
CONFIG = {
    "Strategy": "Bayesian",
    "HyperParameterTuningJobObjective": {"Type": "Maximize", "MetricName": "acc"},
    "ResourceLimits": {
        "MaxNumberOfTrainingJobs": 20,
        "MaxParallelTrainingJobs": 3,
        "MaxRuntimeInSeconds": 3600,
    },
    "ParameterRanges": RANGES,
    "TrainingJobEarlyStoppingType": "Auto",
    "TuningJobCompletionCriteria": {"TargetObjectiveMetricValue": 0.99},
    "RandomSeed": 7,
}
JOB = {
    "HyperParameterTuningJobName": "digits",
    "HyperParameterTuningJobConfig": CONFIG,
    "TrainingJobDefinition": {
        "StaticHyperParameters": {
            "sagemaker_program": '"fit.py"',
            "sagemaker_region": '"x"',
            "epochs": "9",
        },
        "AlgorithmSpecification": {
            "TrainingImage": "image",
            "MetricDefinitions": [{"Name": "acc", "Regex": r"\(acc\)=([0-9.]+)"}],
        },
        "Environment": {"A": "1"},
        "ResourceConfig": {"InstanceCount": 1},
    },
    "Tags": [{"Key": "team", "Value": "us"}],
}


def convert(file, job):
    file.write_text(json.dumps(job, indent=1))
    imported = reading.convert(file, None)
    document = read_text(imported.text, "spec")
    specs.load(document)
    return document.data, "\n".join(map(str, imported.lost))


def test_a_tuning_job(tmp_path):
    spec, lost = convert(tmp_path / "job.json", JOB)
    assert spec["name"] == "digits"
    assert spec["parameters"] == {
        "lr": {"min": 0.001, "max": 0.1, "type": "float", "log": True},
        "drop": {"min": 0.0, "max": 0.5, "type": "float"},
        "layers": {"min": 1, "max": 9, "type": "int"},
        "opt": {"values": ["sgd", "1"]},
        "epochs": 9,
    }
    assert spec["metric"] == {"name": "acc", "goal": "maximize", "target": 0.99}
    assert spec["command"] == ["python", "fit.py", "${args}"]
    assert re.search(spec["collect"]["stdout"], "(acc)=0.5").groupdict() == {"acc": "0.5"}
    assert spec["trials"] == {"max": 20, "parallel": 3}
    assert (spec["search"], spec["seed"]) == ("gp", 7)
    assert (spec["budget"], spec["tags"]) == ({"wall": "3600s"}, {"team": "us"})
    assert spec["environment"] == {"env": {"A": "1"}}
    for word in (
        "scheduler: median",
        "AutoParameters",
        "ReverseLogarithmic",
        "TrainingImage",
        "ResourceConfig",
    ):
        assert word in lost


@pytest.mark.parametrize("whole", [True, False])
def test_hyperband_and_a_configuration_alone(whole, tmp_path):
    steps = {"HyperbandStrategyConfig": {"MinResource": 2, "MaxResource": 27}}
    config = {**CONFIG, "Strategy": "Hyperband", "StrategyConfig": steps}
    config["HyperParameterTuningJobObjective"] = {"Type": "Minimize", "MetricName": "val:loss"}
    patterns = [{"Name": "val:loss", "Regex": "(.)"}]
    definition = {"AlgorithmSpecification": {"MetricDefinitions": patterns}}
    job = {**JOB, "HyperParameterTuningJobConfig": config, "TrainingJobDefinition": definition}
    spec, lost = convert(tmp_path / "job.json", job if whole else config)
    assert spec["metric"] == {"name": "val:loss", "goal": "minimize", "target": 0.99}
    assert spec["fidelity"] == {"unit": "step", "min": 2, "max": 27}
    assert spec["scheduler"] == "hyperband"
    assert spec["command"] == ["python", "train.py", "${args}"]
    assert "no program is given" in lost
    assert ("collect.stdout" in lost) is whole


def test_sagemaker_takes_the_job():
    """The model of the service knows every key of the job, which only lacks a place to run."""
    sagemaker = ServiceModel(Loader().load_service_model("sagemaker", "service-2"))
    shape = sagemaker.operation_model("CreateHyperParameterTuningJob").input_shape
    definition = JOB["TrainingJobDefinition"]
    algorithm = {**definition["AlgorithmSpecification"], "TrainingInputMode": "File"}
    place = {
        "RoleArn": "arn:aws:iam::111111111111:role/sweeps",
        "OutputDataConfig": {"S3OutputPath": "s3://out"},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
    }
    given = {**definition, **place, "AlgorithmSpecification": algorithm}
    found = ParamValidator().validate({**JOB, "TrainingJobDefinition": given}, shape)
    assert found.generate_report() == ""
