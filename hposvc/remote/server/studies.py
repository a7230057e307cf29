"""A server's log of what Optuna wrote into its studies, read and written as that of a home."""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hposvc.remote.http import Http

PLACE = "studies/records"


class ServedStudyLog:
    """The log, like `hposvc.journal.studies.StudyLog`."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def read(self, since: int) -> Iterator[dict[str, Any]]:
        """Yield all records from number `since` on; the first one has number 0."""
        more = True
        while more:
            page = self._http.get(PLACE, {"since": since})
            yield from map(json.loads, page["records"])
            since, more = page["next"], page["more"]

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write records, all or none; they are durable when this returns.

        An answer that was lost is asked for again, with a key by which the server knows what it
        has written already.
        """
        texts = [json.dumps(record) for record in records]
        self._http.post(PLACE, {"records": texts}, key=uuid.uuid4().hex)
