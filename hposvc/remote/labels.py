"""What a job's metadata says of its sweep: which one it is, what was asked for, and where it is."""

import hashlib
import re
import secrets
from collections.abc import Mapping

from cluster.jobs import Job
from hposvc import spec as specs
from hposvc.reading.problems import fail
from hposvc.remote.packing import Packed
from hposvc.remote.parcel import NOWHERE, Whereabouts

# Its sweep; checksums of what was asked for; where its journal and home are; who sent the job.
LABEL, SPEC, CODE = "hposvc.sweep", "hposvc.spec", "hposvc.code"
JOURNAL, HOME, SENDER = "hposvc.journal", "hposvc.home", "hposvc.sender"
ON_HEAD, ON_SERVER = "on the head", "on a server"  # places of a journal that are no folders


def describe(sweep: str, packed: Packed, where: Whereabouts) -> dict[str, str]:
    """What a job's metadata says of its sweep."""
    spec = packed.spec
    ours = where.folders.get("journal", ON_SERVER)
    return {
        LABEL: sweep,
        "hposvc.name": spec.name,
        "hposvc.project": spec.project,
        SPEC: hashlib.sha256(repr(specs.dump(spec)).encode()).hexdigest(),
        CODE: packed.code,
        JOURNAL: ON_HEAD if where is NOWHERE else str(ours),
        HOME: where.home or "",
        SENDER: secrets.token_hex(8),
    }


def number(job: Job) -> int:
    """Which job of its sweep it is: 2 for ID~2."""
    found = re.search(r"~(\d+)$", job.id.removeprefix(job.metadata.get(LABEL, "")))
    return int(found[1]) if found else 1


def check_same(job: Job, labels: Mapping[str, str]) -> None:
    """See that a job's sweep is the one that is asked for.

    Raises:
        SpecError: it has another spec, or other code.
    """
    named = {SPEC: "another spec", CODE: "other code"}
    other = [what for label, what in named.items() if job.metadata.get(label) != labels[label]]
    if other:
        message = f"there is a sweep {labels[LABEL]} with {' and '.join(other)}"
        raise fail(f"{message}; give another --id, or ask for a new one by --new", "--id")


def check_place(job: Job, labels: Mapping[str, str]) -> None:
    """See that what goes on with a job's sweep finds its journal and its checkpoints.

    Raises:
        SpecError: they are in another place.
    """
    for label, what, name in ((JOURNAL, "journal", "HPOSVC_DB"), (HOME, "home", "HPOSVC_HOME")):
        there, here = job.metadata.get(label), labels[label]
        if there != here:
            message = f"the {what} of {labels[LABEL]} is {there or ON_HEAD}, not {here or ON_HEAD}"
            raise fail(f"{message}; set {name}, or ask for a new sweep by --new", "--id")
