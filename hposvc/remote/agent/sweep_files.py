"""Bring a sweep's spec, code and folder to this machine, for its ranks."""

import stat
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from hposvc import spec as specs
from hposvc.errors import NotFound, OutOfReach, SpecError, fail
from hposvc.journal.home import signature
from hposvc.remote.http import Http
from hposvc.spec import SweepSpec, fingerprint
from trainables.contract import StoreFailed
from trainables.storage import stores

Say = Callable[[str], None]

REMEDY = (
    "set the spec's `storage` to a folder that the agents and the server mount at the same path, "
    "or to a store's URL"
)


@dataclass(frozen=True)
class RecordedSweep:
    """A sweep as the journal has it."""

    id: str
    spec: Mapping[str, Any]
    code: Mapping[str, Any]  # checksums of the trainable's files

    @classmethod
    def fetch(cls, http: Http, sweep: str) -> "RecordedSweep":
        """Return the sweep with this id, as a server records it.

        Raises:
            NotFound, Denied, OutOfReach: the server says so, or says nothing.
        """
        row = http.get(f"sweeps/{sweep}/record")["row"]
        return cls(row["id"], row["spec"], row["code"])

    def spec_here(self, http: Http, stack: ExitStack, say: Say) -> SweepSpec:
        """Return the spec with paths that hold on this machine.

        The code is used where it lies, if it is the same here; else it is fetched into a private
        folder, which goes with the stack.

        Raises:
            SpecError: the code is not here, and the server has no archive of it.
        """
        spec = specs.restore(self.spec)
        if spec.folder is None or _is_same(self, spec):
            return spec
        top = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hposvc-agent-")))
        say(f"{spec.folder} is not here as the sweep has it: its code comes from the server")
        try:
            archive = http.content(f"sweeps/{self.id}/archive")
        except NotFound as error:
            message = f"{spec.folder} is not here as the sweep has it, and {error}"
            fix = "mount it here, or submit the sweep to the server"
            raise fail(message, "folder", fix=fix) from error
        unpack(archive, top)
        return specs.restore(relocated(self.spec, spec.folder, f"{top}"))


def _is_same(recorded: RecordedSweep, spec: SweepSpec) -> bool:
    """Return whether the sweep's folder is on this machine, with the code that the sweep has."""
    if not Path(spec.folder or "").is_dir():
        return False
    try:
        fingerprint.check_unchanged(recorded.id, recorded.spec, recorded.code)
    except SpecError:
        return False
    return True


def unpack(archive: bytes, top: Path) -> None:
    """Unpack a zip into a folder; programs stay executable.

    Raises:
        OutOfReach: a name leads out of the folder, or is a link.
    """
    with zipfile.ZipFile(BytesIO(archive)) as files:
        for entry in files.infolist():
            target, mode = top / entry.filename, entry.external_attr >> 16
            if not target.resolve().is_relative_to(top.resolve()) or stat.S_ISLNK(mode):
                raise OutOfReach(
                    f"the sweep's archive has {entry.filename!r}, which leads out of it"
                )
            files.extract(entry, top)
            if mode & stat.S_IXUSR:
                target.chmod(0o700)


def relocated(frozen: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """Return a frozen spec whose folder `old` is at `new`; other paths stay as they are."""

    def move(value: Any) -> Any:
        if isinstance(value, str) and (value == old or value.startswith(f"{old}/")):
            return new + value[len(old) :]
        if isinstance(value, Mapping):
            return {key: move(inner) for key, inner in value.items()}
        return [move(item) for item in value] if isinstance(value, list | tuple) else value

    environment = frozen.get("environment")
    keys = ("folder", "trainable", "command", "serve")
    moved = {key: move(frozen[key]) for key in keys if key in frozen}
    if isinstance(environment, Mapping) and "working_dir" in environment:
        place = {"working_dir": move(environment["working_dir"])}
        moved["environment"] = {**environment, **place}
    return {**frozen, **moved}


def folder_here(folder: Path, storage: str | None, stack: ExitStack, say: Say) -> Path:
    """Return the folder for the ranks' logs, and for checkpoints unless these go to a store.

    Args:
        folder: the sweep's, on the server's machine.
        storage: the URL of the checkpoints; None: they are in the folder.

    Raises:
        OutOfReach: this machine does not see where the checkpoints are.
    """
    if storage is not None:
        try:
            stores.probe(storage)
        except StoreFailed as error:
            raise OutOfReach(f"{error}") from error
    problem = _problem_of(folder)
    if problem is None:
        return folder
    if storage is None:
        raise OutOfReach(f"storage {folder} {problem}: checkpoints would be lost", REMEDY)
    private = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hposvc-agent-")))
    say(f"{folder} {problem}: logs of ranks stay in {private}, and go with this agent")
    return private


def _problem_of(folder: Path) -> str | None:
    """Return why a sweep's folder can't be used from here; None: it can."""
    with suppress(OSError):
        if signature(folder) is None:
            return "is not shared with this machine"
        with tempfile.TemporaryFile(dir=folder):
            return None
    return "can't be written from this machine"
