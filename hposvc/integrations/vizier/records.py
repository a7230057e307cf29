"""What a study of Vizier is in Optuna's storage: the attributes that hold it.

A trial of Vizier is a trial of Optuna with attributes under `vizier:`. Attributes keep the order in
which they were written, whoever wrote them; so where several processes write what only one may,
each writes under a key of its own, and the first one stands.
"""

import base64
import json
import uuid
from collections.abc import Mapping
from typing import Any

from optuna.trial import FrozenTrial, TrialState
from vizier.service import pyvizier as vz
from vizier.service.protos import key_value_pb2, study_pb2

from searchers.values import Value

CONFIG = "vizier:config:"  # of a study: its configuration; the first stands
STATE = "vizier:state"  # of a study
METADATA = "vizier:metadata:"  # of a study: a value of its metadata, or of a trial's
DELETED = "vizier:deleted:"  # of a study: the id of a trial that was deleted
TRIAL = "vizier:trial"  # what a trial was created with
NOTE = "vizier:note"  # the searcher's note of its proposal
CLIENT = "vizier:client:"  # the client that a trial is assigned to; the first stands
MEASUREMENT = "vizier:measurement:"  # each is one, in their order
STOPPING = "vizier:stopping"  # the reason
END = "vizier:end:"  # final measurement and reason of infeasibility; the first stands

Attributes = Mapping[str, Any]


def unique(prefix: str) -> str:
    """Return a key that no other writer has."""
    return f"{prefix}{uuid.uuid4().hex}"


def first(attributes: Attributes, prefix: str) -> Any:
    """Return what was written first under a key with this beginning; None: nothing was."""
    return next((value for key, value in attributes.items() if key.startswith(prefix)), None)


def pack_config(config: vz.StudyConfig) -> str:
    """Return a configuration as a text."""
    return base64.b64encode(config.to_proto().SerializeToString()).decode()


def unpack_config(packed: str) -> vz.StudyConfig:
    """Return the configuration that `pack_config` made a text of."""
    return vz.StudyConfig.from_proto(study_pb2.StudySpec.FromString(base64.b64decode(packed)))


def pack_measurement(measurement: vz.Measurement | None) -> dict[str, Any] | None:
    """Return a measurement as JSON."""
    if measurement is None:
        return None
    metrics = {name: [each.value, each.std] for name, each in measurement.metrics.items()}
    return {
        "metrics": metrics,
        "steps": measurement.steps,
        "elapsed_secs": measurement.elapsed_secs,
        "checkpoint_path": measurement.checkpoint_path,
    }


def unpack_measurement(packed: Mapping[str, Any] | None) -> vz.Measurement | None:
    """Return the measurement that `pack_measurement` made JSON of."""
    if packed is None:
        return None
    pairs = packed["metrics"].items()
    metrics = {name: vz.Metric(value, std=std) for name, (value, std) in pairs}
    return vz.Measurement(**{**packed, "metrics": metrics})


def pack_trial(trial: vz.Trial, parameters: Mapping[str, Value]) -> dict[str, Any]:
    """Return as JSON what a trial is created with; `parameters` are its own, as Vizier has them."""
    return {
        "parameters": dict(parameters),
        "description": trial.description,
        "related_links": trial.related_links,
        "measurements": [pack_measurement(each) for each in trial.measurements],
        "metadata": list(pack_metadata(trial.metadata).values()),
    }


def pack_end(measurement: vz.Measurement | None, infeasible: str | None) -> dict[str, Any]:
    """Return as JSON how a trial ended."""
    return {"measurement": pack_measurement(measurement), "infeasibility_reason": infeasible}


def read_trial(recorded: FrozenTrial, of_study: Attributes) -> vz.Trial:
    """Return a trial as it stands."""
    attributes = recorded.system_attrs
    packed = attributes[TRIAL]
    later = [value for key, value in attributes.items() if key.startswith(MEASUREMENT)]
    measurements = [*packed["measurements"], *later]
    client = first(attributes, CLIENT)
    end = (recorded.state.is_finished() and first(attributes, END)) or pack_end(None, None)
    created = recorded.datetime_start or recorded.datetime_complete
    metadata = unpack_metadata(dict(enumerate(packed["metadata"])))
    trial_id = recorded.number + 1
    metadata.attach(read_metadata(of_study, trial_id))
    return vz.Trial(
        id=trial_id,
        parameters=packed["parameters"],
        description=packed["description"],
        related_links=packed["related_links"],
        measurements=[unpack_measurement(each) for each in measurements],
        metadata=metadata,
        is_requested=client is None and recorded.state == TrialState.WAITING,
        assigned_worker=client,
        stopping_reason=attributes.get(STOPPING),
        final_measurement=unpack_measurement(end["measurement"]),
        infeasibility_reason=end["infeasibility_reason"],
        creation_time=created,
        completion_time=recorded.datetime_complete,
    )


def pack_metadata(metadata: vz.Metadata) -> dict[str, str]:
    """Return the values of metadata as texts, each with a key that tells its place."""
    packed = {}
    for item in vz.metadata_util.make_key_value_list(metadata):
        text = base64.b64encode(item.SerializeToString()).decode()
        packed[json.dumps([item.ns, item.key])] = text
    return packed


def unpack_metadata(packed: Mapping[Any, str]) -> vz.Metadata:
    """Return the metadata that `pack_metadata` made texts of."""
    texts = packed.values()
    items = [key_value_pb2.KeyValue.FromString(base64.b64decode(text)) for text in texts]
    return vz.metadata_util.from_key_value_list(items)


def metadata_prefix(trial_id: int | None) -> str:
    """Return the beginning of the keys of a trial's metadata; None: of the study's own."""
    return f"{METADATA}{'' if trial_id is None else trial_id}:"


def read_metadata(of_study: Attributes, trial_id: int | None) -> vz.Metadata:
    """Return the metadata that a trial, or None, the study, was given later."""
    prefix = metadata_prefix(trial_id)
    return unpack_metadata({key: text for key, text in of_study.items() if key.startswith(prefix)})
