"""Runs of W&B in the files of its offline mode, as W&B's own reader reads them."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record
from wandb.sdk.internal.datastore import DataStore

UNSTEADY = ("_runtime", "_wandb")  # what W&B measures while it writes


@dataclass
class Read:
    """A run as its file says."""

    run: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    exits: list[int] = field(default_factory=list)

    def take(self, record: Any) -> None:
        if record.HasField("run"):
            self.run = record.run
            self.config = values(record.run.config.update)
        if record.HasField("history"):
            self.rows.append(values(record.history.item))
            assert self.rows[-1]["_step"] == record.history.step.num
        if record.HasField("summary"):
            self.summary |= values(record.summary.update)
        if record.HasField("exit"):
            self.exits.append(record.exit.exit_code)

    def steady(self) -> str:
        """Return what is the same each time that the run is written."""
        return repr((self.run.run_id, self.config, self.rows, self.summary, self.exits))


def values(items: Any) -> dict[str, Any]:
    named = {item.nested_key[0] if item.nested_key else item.key: item for item in items}
    return {
        key: json.loads(item.value_json)
        for key, item in sorted(named.items())
        if key not in UNSTEADY
    }


def read(path: Path) -> Read:
    log, whole = DataStore(), Read()
    log.open_for_scan(str(path))
    while (data := log.scan_data()) is not None:
        whole.take(Record.FromString(data))
    log.close()
    return whole
