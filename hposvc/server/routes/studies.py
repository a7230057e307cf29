"""The records of Optuna's studies: what `hposvc.optuna.Storage(URL)` reads and writes.

They are Optuna's own, and Optuna replays them on the caller's side. All studies of a home are in
one log, so a caller may read all of them or none, and likewise write.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict, Field

from hposvc.errors import shown
from hposvc.journal.studies import KeyTaken, StudyLog, StudyRequest
from hposvc.server.access import StudyReader, StudyWriter
from hposvc.server.problems import ApiError
from hposvc.server.routes.events import LAST
from hposvc.server.routes.submit import Text
from hposvc.server.service import Serving

router = APIRouter(tags=["studies"])

MOST = 1000  # records in a request, or in an answer
PAGE_SIZE = 2**20  # characters of the records in an answer
# What a record of each `op_code` has: without it, Optuna could replay no study of the home again.
CONTENTS: Mapping[int, Mapping[str, type | tuple[type, ...]]] = {
    0: {"study_name": str, "directions": list},
    1: {"study_id": int},
    2: {"study_id": int, "user_attr": dict},
    3: {"study_id": int, "system_attr": dict},
    4: {"study_id": int, "datetime_start": (str, type(None))},
    5: {
        "trial_id": int,
        "param_name": str,
        "param_value_internal": (int, float),
        "distribution": str,
    },
    6: {"trial_id": int, "state": int, "values": (list, type(None))},
    7: {"trial_id": int, "step": int, "intermediate_value": (int, float)},
    8: {"trial_id": int, "user_attr": dict},
    9: {"trial_id": int, "system_attr": dict},
    10: {},  # of other programs; Optuna passes it over
}
EXAMPLE = '{"op_code": 0, "worker_id": "w", "study_name": "bowl", "directions": [1]}'
Key = Annotated[
    Text,
    Header(
        min_length=1,
        max_length=250,
        description="A new one for each request; a request that is sent again has the same.",
    ),
]


class Records(BaseModel):
    """Records of the log, in order."""

    records: list[str] = Field(description="Each is JSON as Optuna wrote it, NaN included.")
    next: int = Field(description="`since` of the next request.")
    more: bool = Field(description="Whether there are further records now.")


class NewRecords(BaseModel):
    """Records to append, all or none."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"records": [EXAMPLE]}})

    records: list[str] = Field(
        min_length=1, max_length=MOST, description="Each is the JSON of a record of Optuna."
    )


class Appended(BaseModel):
    """The records are durable."""

    first: int = Field(description="The number of the first of them in the log.")


@router.get("/studies/records")
def read_records(
    caller: StudyReader,
    service: Serving,
    since: Annotated[int, Query(ge=0, le=LAST, description="A number, from 0 on.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST)] = MOST,
) -> Records:
    """Return the records of Optuna's studies from number `since` on."""
    records, more = _log(service).page(since, limit, PAGE_SIZE)
    return Records(records=records, next=since + len(records), more=more)


@router.post("/studies/records")
def append_records(
    caller: StudyWriter, service: Serving, body: NewRecords, idempotency_key: Key
) -> Appended:
    """Append records to Optuna's studies; the same request again appends nothing."""
    records = _parse(body.records)
    try:
        first = _log(service).append(records, StudyRequest(caller.name, idempotency_key))
    except KeyTaken:
        message = f"Idempotency-Key {idempotency_key} was sent with other records"
        raise ApiError(409, "id_taken", message, fix="send a new key") from None
    return Appended(first=first)


def _log(service: Serving) -> StudyLog:
    return StudyLog(service.sweeps.journal.store)


def _parse(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return records from their JSON.

    Raises:
        ApiError: a text is no record of Optuna.
    """
    records = []
    for number, text in enumerate(texts):
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _no_record(number, f"is no JSON: {error}") from error
        if problem := _problem(record):
            raise _no_record(number, problem)
        records.append(record)
    return records


def _problem(record: object) -> str:
    """Return why Optuna can't replay a record; empty: it has what it needs."""
    if not isinstance(record, dict) or not isinstance(record.get("worker_id"), str):
        return "is no JSON object with a `worker_id`"
    operation = record.get("op_code")
    contents = CONTENTS.get(operation) if type(operation) is int else None
    if contents is None:
        return f"has the op_code {shown(operation)}, of which Optuna 5 has none"
    wrong = [
        name
        for name, kind in contents.items()
        if name not in record or not isinstance(record[name], kind)
    ]
    return f"lacks {' and '.join(wrong)}, or has another type there" if wrong else ""


def _no_record(number: int, problem: str) -> ApiError:
    key = f"records.{number}"
    fix = "send what optuna.storages.JournalStorage gives its backend"
    return ApiError(400, "bad_request", f"{key}: {problem}", key=key, fix=fix)
