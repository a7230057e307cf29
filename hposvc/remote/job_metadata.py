"""The metadata of a sweep's job: the sweep's id, checksums of spec and code, and its places."""

import hashlib
import re
import secrets
from collections.abc import Mapping

from cluster.jobs import Job
from hposvc import spec as specs
from hposvc.errors import fail
from hposvc.remote.archive import SourceArchive
from hposvc.remote.job_payload import ALL_ON_HEAD, StoreLocations

# Keys: the sweep's id; checksums of spec and code; places of journal and home; the sender's token.
LABEL, SPEC, CODE = "hposvc.sweep", "hposvc.spec", "hposvc.code"
JOURNAL, HOME, SENDER = "hposvc.journal", "hposvc.home", "hposvc.sender"
ON_HEAD, ON_SERVER = "on the head", "on a server"  # a journal's place, if it is no folder


def describe(sweep: str, packed: SourceArchive, locations: StoreLocations) -> dict[str, str]:
    """Return the metadata of a job that carries the sweep."""
    spec = packed.spec
    journal = locations.folders.get("journal", ON_SERVER)
    return {
        LABEL: sweep,
        "hposvc.name": spec.name,
        "hposvc.project": spec.project,
        SPEC: hashlib.sha256(repr(specs.dump(spec)).encode()).hexdigest(),
        CODE: packed.code,
        JOURNAL: ON_HEAD if locations is ALL_ON_HEAD else str(journal),
        HOME: locations.home or "",
        SENDER: secrets.token_hex(8),
    }


def number(job: Job) -> int:
    """Return a job's number among the jobs of its sweep: 2 for ID~2, 1 for ID."""
    match = re.search(r"~(\d+)$", job.id.removeprefix(job.metadata.get(LABEL, "")))
    return int(match[1]) if match else 1


def check_same(job: Job, labels: Mapping[str, str]) -> None:
    """Check that a job's sweep has the spec and code that are being submitted.

    Raises:
        SpecError: the job's sweep has another spec, or other code.
    """
    messages = {SPEC: "another spec", CODE: "other code"}
    differences = [
        difference
        for label, difference in messages.items()
        if job.metadata.get(label) != labels[label]
    ]
    if differences:
        message = f"there is a sweep {labels[LABEL]} with {' and '.join(differences)}"
        raise fail(f"{message}; give another --id, or ask for a new one by --new", "--id")


def check_place(job: Job, labels: Mapping[str, str]) -> None:
    """Check that a job which continues a sweep would find its journal and its checkpoints.

    Raises:
        SpecError: the sweep's earlier job kept them in another place.
    """
    for label, store, name in ((JOURNAL, "journal", "HPOSVC_DB"), (HOME, "home", "HPOSVC_HOME")):
        recorded, present = job.metadata.get(label), labels[label]
        if recorded != present:
            message = (
                f"the {store} of {labels[LABEL]} is {recorded or ON_HEAD}, not {present or ON_HEAD}"
            )
            raise fail(f"{message}; set {name}, or ask for a new sweep by --new", "--id")
