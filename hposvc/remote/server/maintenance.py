"""Keep a server in order: MLflow's copies, garbage, notifications, and tokens."""

import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from hposvc.operations.garbage import Garbage
from hposvc.operations.gc import Freed
from hposvc.operations.notify import Sent
from hposvc.remote.server import submission
from hposvc.remote.server.connection import ServedSweeps, place
from hposvc.tracking.comparison import MlflowComparison

COMPARE_S = 600.0  # for which a comparison of MLflow with the journal may take


def check(server: ServedSweeps, sweep: str, fix: bool = False) -> MlflowComparison:
    """Compare what MLflow holds of a sweep with the journal, like `mlflow.check`."""
    where = place(sweep, "doctor")
    if fix:
        return MlflowComparison.from_data(
            server.result(server.http.post(where, {}, repeatable=True))
        )
    return MlflowComparison.from_data(server.http.get(where, work_s=COMPARE_S))


def collect(
    server: ServedSweeps,
    sweep: str | None = None,
    dry_run: bool = False,
    compressed: bool = False,
    logs: bool = False,
) -> Freed:
    """Delete what no sweep needs, of one sweep or of the whole home, like `gc.collect`."""
    where = "gc" if sweep is None else place(sweep, "gc")
    body = {"dry_run": dry_run, "compact": compressed, "logs": logs}
    result = server.result(server.http.post(where, body, repeatable=True))
    files = [{key: file[key] for key in file if key != "freed"} for file in result["files"]]
    garbage = [Garbage(**file) for file in files]
    return Freed(garbage, result["failures"], result["vacuum_later"])


def send_again(
    server: ServedSweeps, sweep: str, variables: Mapping[str, str] = os.environ
) -> list[Sent]:
    """Attempt every delivery of a sweep that was not made yet, like `notify.send_again`."""
    row = server.facts(sweep)["row"]
    body = {"secrets": submission.find_variables(row["spec"], variables)}
    result = server.result(server.http.post(place(row["id"], "notify"), body, repeatable=True))
    return [Sent(**each) for each in result["results"]]


def create_token(
    server: ServedSweeps, owner: str, scopes: Sequence[str], expires: str, by: str = ""
) -> Any:
    """Create a token, like `tokens.create_token`; the server knows by whom."""
    return server.http.post("tokens", {"owner": owner, "scopes": list(scopes), "expires": expires})


def list_tokens(server: ServedSweeps) -> Any:
    """Return all tokens without their secrets, like `tokens.list_tokens`."""
    return server.http.get("tokens")["tokens"]


def revoke_token(server: ServedSweeps, token: str) -> Any:
    """Revoke a token, like `tokens.revoke_token`."""
    return server.http.delete(f"tokens/{quote(token, safe='')}")
