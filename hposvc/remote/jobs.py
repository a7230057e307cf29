"""Jobs of a Ray cluster: how they are reached and started, what they run in, how they fail.

No id can be used for two jobs: Ray 2.60 accepts the id of a deleted job again, but the new job may
then die with the old job's supervisor (measured). So the job that follows one with the id NAME is
called NAME~2, and so on; each job has NAME in its metadata.
"""

import re
import shlex
from collections.abc import Mapping
from functools import partial
from typing import Any

from cluster import local
from cluster.jobs import Job, Jobs, with_retries
from hposvc.errors import NotFound, OutOfReach, Problem, SpecError, fail
from hposvc.events import NOTHING
from hposvc.journal.home import Home
from hposvc.remote.archive import pack_own_packages

PYTHON = "$(command -v python || command -v python3)"  # Debian has no `python`
USAGE, UNKNOWN = 2, 4  # exit codes: the spec is refused, the sweep does not exist
LOG_LINES = 8  # last lines of a job's log that an error shows


def dial(home: Home, address: str | None) -> Jobs:
    """Connect to the job server of the cluster whose dashboard is at this address.

    Args:
        address: None: this home's own cluster (`hposvc cluster up`), whose token is in the home.

    Raises:
        JobsError: nobody answers at the address, or another token is needed.
        SpecError: there is neither an address nor a cluster of this home.
    """
    own_cluster = local.find(home.path)
    if own_cluster is not None and address in (None, own_cluster.dashboard):
        return Jobs.at(own_cluster.dashboard, own_cluster.environment())
    if address is None:
        message = "is missing; give http://HEAD:8265, or start one by `hposvc cluster up --local 2`"
        raise fail(message, "--address")
    return Jobs.at(address)


def latest(jobs: Jobs, label: str, name: str) -> Job | None:
    """Return the last job with this name in its metadata, running or ended; None: there is none."""
    named = with_retries(partial(jobs.find_all, label, name))
    return max(named, key=partial(_number, name), default=None)


def start(
    jobs: Jobs,
    label: str,
    name: str,
    command: str,
    environment: Mapping[str, object],
    metadata: Mapping[str, str],
    needs: Mapping[str, object] = NOTHING,
) -> Job:
    """Start a job, and return it; or the one that somebody else started a moment before.

    Args:
        label: the key of the metadata that has the name.
        metadata: more of it; a job with all of this is not somebody else's.
        needs: of the command, from a node: see `Jobs.submit`.
    """
    last = latest(jobs, label, name)
    count = 1 if last is None else _number(name, last) + 1
    while True:
        identifier = name if count == 1 else f"{name}~{count}"
        jobs.submit(identifier, command, environment, {label: name, **metadata}, needs)
        # Ask for the job rather than trust the answer, which may be to a request sent twice.
        started = with_retries(partial(jobs.find, identifier))
        if started is None:
            raise OutOfReach(f"{identifier}: the cluster has lost the job")
        is_ours = metadata.items() <= started.metadata.items()
        if is_ours or (started.metadata.get(label) == name and not started.ended):
            return started
        count += 1  # this job id was used before


def command(verb: str, payload: str, *words: str) -> str:
    """Return the shell command of a job: a hidden verb, with the name of the job's payload."""
    return f"{PYTHON} {shlex.join(['-m', 'hposvc', verb, *words, '--payload', payload])}"


def runtime_env(
    jobs: Jobs, archive: bytes, given: Mapping[str, Any] = NOTHING
) -> dict[str, object]:
    """Return Ray's runtime_env of a job: the user's archive, hposvc's packages, and what is given.

    There is always a working folder: a job without one would run in the folder where Ray was
    started, and import the modules that lie there.

    Args:
        given: by the spec; `pack` has seen to it that it names no folders.
    """
    return {
        **given,
        "working_dir": jobs.upload(archive),
        "py_modules": [jobs.upload(pack_own_packages()), *given.get("py_modules", ())],
    }


def job_error(job: Job, log: str) -> Exception:
    """Return a failed job's error: an exception as on the cluster, with the log's last lines."""
    lines = [line for line in log.splitlines() if line.strip()]
    starts = [number for number, line in enumerate(lines) if line.startswith("Running entrypoint")]
    output = lines[starts[-1] + 1 :] if starts else []
    text = "\n".join(output[-LOG_LINES:]) or job.message.strip()
    if job.exit_code == USAGE:
        return SpecError([Problem((), text)])
    if job.exit_code == UNKNOWN:
        return NotFound(text)
    return OutOfReach(text if job.exit_code else f"{job.id}: {job.state}: {text}")


def _number(name: str, job: Job) -> int:
    """Return a job's number among those of its name: 2 for NAME~2, 1 for NAME."""
    match = re.search(r"~(\d+)$", job.id.removeprefix(name))
    return int(match[1]) if match else 1
