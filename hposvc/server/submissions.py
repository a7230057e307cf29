"""Submission: from the body of a request to a recorded sweep, without importing anybody's code.

The same request again, by the same or another caller, answers with the sweep of the first one.
"""

import hashlib
import json
import os
import secrets as random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from hposvc import api
from hposvc import spec as specs
from hposvc.analysis import reproduction
from hposvc.errors import KeyPath, Problem, SpecError, StoreError, fail, shown
from hposvc.events import UnknownEvent
from hposvc.journal import submissions, submitted_secrets, supervision
from hposvc.journal.journal import SweepRow
from hposvc.journal.operations import SUBMIT
from hposvc.journal.submissions import Submission
from hposvc.server import sweep_secrets, user_spaces
from hposvc.server.access import Principal, check_project
from hposvc.server.archives import Archives
from hposvc.server.policy import check_limits, fill_defaults
from hposvc.server.problems import ApiError, PathOutside
from hposvc.server.service import Service
from hposvc.spec import SweepSpec, choices, paths
from hposvc.spec.environment import FILE_PREFIX
from hposvc.spec.parsing import overrides
from hposvc.spec.parsing.document import MAX_BYTES, Document, from_mapping, read_text
from hposvc.spec.types import check_id
from hposvc.verbs.place import fork_data
from trainables.contract import PICKLE, PYTHONS, is_url

DIGITS = 10  # of the digest, in the id of a sweep
MAX_ID, MAX_PROJECT = 80, 200  # characters
SPEC = "spec"  # the document's name in errors


@dataclass(frozen=True)
class SubmissionRequest:
    """A spec and its files, as a caller submits them."""

    spec: Mapping[str, Any] | str | Document  # a mapping, YAML text, or either once it is read
    id: str | None = None  # None: the spec's name, and the first digits of the digest
    files: Mapping[str, str] | None = None  # texts by path, in place of an archive
    archive: str | None = None  # SHA-256 of a stored archive; None: the sweep needs no files
    new: bool = False  # make a new sweep even if the same was submitted before
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # values by name
    key: str | None = None  # Idempotency-Key
    verb: str = SUBMIT  # of the operation
    code: Mapping[str, Any] = field(default_factory=dict)  # to be found by the driver; empty: any


def submit(service: Service, principal: Principal, request: SubmissionRequest) -> Submission:
    """Record the sweep of a request, and return its submission; the same request again, the same.

    Raises:
        SpecError: the spec is not valid, or does not keep the operator's limits.
        PathOutside: a path of the spec, or of a file, leads out of the sweep's files.
        NotFound: there is no `warm_start` sweep that the caller may see.
        ApiError: the caller may not submit to the spec's project; there is no such archive; or the
            id, or the Idempotency-Key, was used with another request.
    """
    sweeps, archives = service.sweeps, service.archives
    document = _read(request.spec)
    archive = request.archive if request.files is None else archives.add(request.files)
    digest = _digest(request, document, archive)
    earlier = _find_by_key(sweeps, principal.name, request.key, digest)
    if earlier is not None:
        return earlier
    filled = fill_defaults(service.config.defaults, document)
    spec = _load(filled, _folder_of(archives, archive))
    check_project(principal, spec.project)
    if spec.warm_start is not None:  # full ids: without the caller, `last` is anybody's newest
        seen = dict.fromkeys(service.find(principal, name).id for name in spec.warm_start.sweeps)
        spec = replace(spec, warm_start=replace(spec.warm_start, sweeps=tuple(seen)))
    name = _name(request, spec, digest)
    earlier = _find(sweeps, request, name, digest)
    if earlier is not None:
        return earlier
    check_limits(service.config.limits, spec, document)
    _check_secrets(spec, request.secrets, document)
    row = api.prepare(sweeps, spec, name, request.code, partial(service.sees, principal))
    with sweep_secrets.kept(sweeps.home, name, request.secrets) as adopt:
        created = submissions.create(
            *(sweeps.journal, row, principal.name, digest, archive),
            *(request.key, adopt, request.verb),
        )
    # Otherwise another request took the key, or the id, a moment ago.
    earlier = created or _find_by_key(sweeps, principal.name, request.key, digest)
    earlier = earlier or _find(sweeps, request, name, digest)
    service.wake()
    if earlier is None:
        raise ApiError(
            409, "busy", f"{name} was deleted a moment ago", fix="send the request again"
        )
    return earlier


def fork(
    service: Service,
    principal: Principal,
    row: SweepRow,
    changes: Mapping[str, object],
    request: SubmissionRequest,
) -> Submission:
    """Record a new sweep with the spec and files of another, from which it learns.

    It has the other's secrets only if the caller brought them: with changes of the spec, anybody
    could have them printed.

    Args:
        row: the other sweep.
        changes: of its spec, by dotted keys.
        request: has the new sweep's id, key and secrets.

    Raises:
        SpecError, ApiError: see `submit`.
    """
    with service.folded.open(row) as folded:
        data = fork_data(folded.record())
    document = overrides.apply(from_mapping(data), changes)
    asked = replace(request, new=request.id is None, verb="fork")
    return _derive(service, principal, row, document, asked)


def reproduce(
    service: Service,
    principal: Principal,
    row: SweepRow,
    trial: str,
    accept_code: bool,
    secrets: Mapping[str, str],
) -> Submission:
    """Record a new sweep that trains a trial of another sweep again, from the same files.

    Its driver compares the code with that of the other sweep, unless `accept_code` is true.

    Raises:
        NotFound: there is no such trial, or it has no value.
        SpecError, ApiError: see `submit`.
    """
    check_project(principal, row.project)
    with service.folded.open(row) as folded:
        data = reproduction.replay_data(folded.record(), trial)
    asked = SubmissionRequest(
        {},
        reproduction.free_name(service.sweeps, row.id, trial),
        secrets=secrets,
        verb="repro",
        code={} if accept_code else row.code,
    )
    # Complete: what the operator's defaults are today was not so then.
    document = from_mapping(specs.dump(specs.load(data)))
    return _derive(service, principal, row, document, asked)


def _derive(
    service: Service,
    principal: Principal,
    row: SweepRow,
    document: Document,
    request: SubmissionRequest,
) -> Submission:
    """Record a new sweep with the files of another, and with its secrets if they are the caller's.

    Args:
        document: the new sweep's spec.
    """
    origin = submissions.find(service.sweeps.journal.store, row.id)
    named = specs.load(document).environment.secrets
    values = dict(request.secrets)
    if origin is not None and origin.by == principal.name:
        values = {**submitted_secrets.read(service.sweeps.home, row.id), **values}
    asked = replace(
        request,
        spec=document,
        archive=None if origin is None else origin.archive,
        secrets={name: value for name, value in values.items() if name in named},
    )
    return submit(service, principal, asked)


def forget_secrets(sweeps: api.Sweeps) -> None:
    """Delete the secrets of sweeps that are over or gone, before a server begins.

    A sweep's driver does so at the end of the sweep, unless the driver is on another machine.
    """
    submitted_secrets.delete_drafts(sweeps.home)
    for sweep in submitted_secrets.holders(sweeps.home):
        is_gone = sweeps.journal.find(sweep) is None
        rests = supervision.find(sweeps.journal.store, sweep) is None
        with suppress(SpecError, UnknownEvent, StoreError):  # it stays if it can't be read
            if is_gone or (rests and api.load(sweeps, sweep).state.finished):
                submitted_secrets.delete(sweeps.home, sweep)


def _read(spec: Mapping[str, Any] | str | Document) -> Document:
    """Return the document of a submitted spec.

    Raises:
        SpecError: it is no YAML, or no plain data.
    """
    if isinstance(spec, Document):
        document = spec
    else:
        if isinstance(spec, str) and len(spec) > MAX_BYTES:
            raise fail("is larger than 1 MiB", fix="is it a spec?", place=SPEC)
        document = read_text(spec, SPEC) if isinstance(spec, str) else from_mapping(spec)
    text = json.dumps(document.data, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"holds half of a surrogate pair, {error.object[error.start]!r}"
        raise fail(message, fix="send text", place=SPEC) from error
    return document


def _folder_of(archives: Archives, archive: str | None) -> Path:
    """Return the folder of a sweep's files."""
    folder = archives.find(archives.add({}) if archive is None else archive)
    if folder is None:
        message = f"there is no archive {archive}; put it to /api/v1/archives/{archive} first"
        raise ApiError(400, "bad_request", message, key="archive")
    return folder


def _load(document: Document, folder: Path) -> SweepSpec:
    """Return the checked spec of a document, whose relative paths begin in the folder.

    Raises:
        SpecError, PathOutside: see `submit`.
    """
    outside = list(_paths_outside(document.data, folder))
    if outside:
        raise PathOutside(map(document.locate, outside))
    named = document.data.get("folder")
    here = f"{folder / named}" if isinstance(named, str) else f"{folder}"
    data: dict[str, object] = {**document.data, "folder": here}
    try:
        data = user_spaces.resolve(data, folder)
    except SpecError as error:
        raise SpecError(map(document.locate, error.problems)) from error
    spec = specs.load(replace(document, data=data))
    if not any(key.startswith(choices.SCHEDULER) for key in spec.chosen):  # by no client's check
        spec = choices.with_options(spec, resumes=spec.engine.traits.simulated)
    if len(spec.project) > MAX_PROJECT or "\0" in spec.project:
        fix = f"give {MAX_PROJECT} characters at most, and no zero byte"
        problem = Problem(("project",), f"is {shown(spec.project)}", fix)
        raise SpecError([document.locate(problem)])
    missing = list(_missing_files(spec, folder))
    if missing:
        raise SpecError(map(document.locate, missing))
    return spec


def _paths_outside(data: Mapping[str, object], folder: Path) -> Iterator[Problem]:
    """Yield the relative paths of a spec that lead out of the folder by `..`."""
    for path, text in _paths(data):
        if "\0" in text:
            yield Problem(path, "is no path: it holds a zero byte")
        if Path(text).is_absolute() or text.startswith("~") or is_url(text):
            continue
        start = "" if path == ("folder",) else f"{data.get('folder') or ''}"
        if ".." in Path(os.path.normpath(Path(start) / text)).parts:
            remedy = "send the files it needs, and give their place among them"
            yield Problem(path, f"is {text}, which leads out of the sweep's files", remedy)


def _paths(data: Mapping[str, object]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the texts of a spec that name a file or a folder, with their keys."""
    for key in (("folder",), *paths.PATHS):
        for path, text in paths.texts_at(data, key):
            file = text.removeprefix(PICKLE).removeprefix(paths.SQLITE)
            yield path, file.rpartition(":")[0] if ".py:" in file else file
    environment = data.get("environment")
    sources = environment.get("secrets") if isinstance(environment, Mapping) else None
    for entry in [sources] if isinstance(sources, Mapping) else sources or []:
        for text in entry.values() if isinstance(entry, Mapping) else []:
            if isinstance(text, str) and text.startswith(FILE_PREFIX):
                yield ("environment", "secrets"), text.removeprefix(FILE_PREFIX)


def _missing_files(spec: SweepSpec, folder: Path) -> Iterator[Problem]:
    """Yield the code files of a spec that should be among the sweep's files, and are not."""
    named = {
        place: reference.rpartition(":")[0 if ".py:" in reference else 2]
        for place, reference in paths.code_references(specs.dump(spec)).items()
        if ".py:" in reference or reference.startswith(PICKLE)
    }
    for key, items in spec.programs.items():
        if len(items) > 1 and items[0] in PYTHONS and items[1].endswith(".py"):
            named[key] = f"{Path(spec.works_in or folder) / items[1]}"
    for path, file in named.items():
        if Path(file).is_relative_to(folder) and not Path(file).is_file():
            place = Path(file).relative_to(folder)
            yield Problem(path, f"there is no file {place}", "send it in `files` or in an archive")


def _name(request: SubmissionRequest, spec: SweepSpec, digest: str) -> str:
    if request.id is None:
        mark = random.token_hex(DIGITS // 2) if request.new else digest[:DIGITS]
        return f"{spec.name[: MAX_ID - DIGITS - 1]}-{mark}"
    try:
        return check_id(request.id)
    except ValueError as error:
        raise ApiError(400, "bad_request", f"id: {error}", key="id") from error


def _digest(request: SubmissionRequest, document: Document, archive: str | None) -> str:
    """Return the SHA-256 of all that makes the sweep what it is."""
    made_of = {"spec": document.data, "id": request.id, "archive": archive, "new": request.new}
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()


def _find_by_key(sweeps: api.Sweeps, by: str, key: str | None, digest: str) -> Submission | None:
    """Return what the caller submitted with this key; None: nothing yet."""
    earlier = None if key is None else submissions.find_by_key(sweeps.journal.store, by, key)
    if earlier is None:
        return None
    submission, asked = earlier
    if asked != digest:
        message = f"Idempotency-Key {key} was sent with another request, which made"
        raise ApiError(409, "id_taken", f"{message} {submission.sweep}", fix="send a new key")
    return submission


def _find(
    sweeps: api.Sweeps, request: SubmissionRequest, name: str, digest: str
) -> Submission | None:
    """Return the submission that has this id, of the same request; None: the id is free."""
    # In this order: another request may be recording the sweep, with its submission.
    if sweeps.journal.find(name) is None:
        return None
    earlier = submissions.find(sweeps.journal.store, name)
    if earlier is not None and earlier.digest == digest and not request.new:
        return earlier
    message = f"there is another sweep {name} already; give another id"
    raise ApiError(409, "id_taken", message, key="id")


def _check_secrets(spec: SweepSpec, values: Mapping[str, str], document: Document) -> None:
    """Check that a spec's secrets have values, and no others came."""
    lacking = [
        Problem(sweep_secrets.KEY, f"{name} has no value", f"{sweep_secrets.OTHERWISE}")
        for name in sweep_secrets.lacking(spec, values)
    ]
    if problems := [*sweep_secrets.wrong(spec, values), *lacking]:
        raise SpecError(map(document.locate, problems))
