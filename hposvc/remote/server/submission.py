"""Submit new sweeps to a server, with their files and secrets."""

import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any

from hposvc import spec as specs
from hposvc.errors import SpecError, fail
from hposvc.remote.archive import EMPTY_ARCHIVE, SourceArchive, pack, private_paths, say_left_out
from hposvc.remote.server import following
from hposvc.remote.server.connection import ServedSweeps
from hposvc.spec import SweepSpec
from hposvc.spec.environment import Environment, read_secrets
from hposvc.spec.paths import code_references
from hposvc.spec.variants import freeze
from hposvc.state.trial import OVER
from trainables.contract import PICKLE


@dataclass(frozen=True)
class Accepted:
    """A sweep that a server has accepted."""

    sweep: str
    state: str
    operation: str
    server: str  # its URL, as `--server` takes it

    def describe(self) -> list[str]:
        """Describe it and the next steps, as lines for people."""
        texts = [f"{self.sweep} is on {self.server}: {self.state}"]
        if self.state in OVER:
            texts.append(f"it has ended; to run it once more: submit --new; {self.sweep} stays")
        command = following.command_at(self.server, f"status {self.sweep}")
        return [*texts, f"look at it by: {command}"]


def submit(
    server: ServedSweeps,
    spec: SweepSpec,
    identifier: str | None = None,
    new: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Accepted:
    """Send a sweep with its files; the same sweep sent again is not begun again.

    Args:
        identifier: of the sweep; None: a name with a hash of the spec and of the files.
        new: use an id that was never used, so that another sweep begins.
        say: receives messages about the progress, for people.

    Raises:
        SpecError: the spec is wrong, here or there; or another sweep has the id.
    """
    with TemporaryDirectory() as folder:
        freeze(spec, versions := Path(folder))
        private = private_paths(server.home, spec)
        packed = pack(spec, Path(spec.folder or Path.cwd()), sys.path, private, versions=versions)
    say_left_out(packed, say)
    _check_roots(packed)
    secrets = _find_secrets(spec.environment)
    # A secret's file is on this machine: the server knows the secret by its name and value alone.
    sources = {**packed.spec.environment.secrets, **{name: name for name in secrets}}
    environment = replace(packed.spec.environment, secrets=sources)
    body: dict[str, object] = {"spec": specs.given(replace(packed.spec, environment=environment))}
    if secrets:
        body["secrets"] = secrets
    if packed.archive != EMPTY_ARCHIVE:
        body["archive"] = hashlib.sha256(packed.archive).hexdigest()
        server.http.put(f"archives/{body['archive']}", packed.archive)
    return send(server, body, identifier, new)


def send(
    server: ServedSweeps,
    body: Mapping[str, object],
    identifier: str | None = None,
    new: bool = False,
) -> Accepted:
    """Send a sweep as the API takes it; however often the request arrives, it is made once."""
    wish: dict[str, object] = {"new": new} if identifier is None else {"id": identifier}
    answer = server.http.post("sweeps", {**body, **wish}, key=token_hex(16))
    return Accepted(answer["sweep"], answer["state"], answer["operation"], server.http.name)


def _check_roots(packed: SourceArchive) -> None:
    """Check that a module of the archive is where a server imports from: in its top folder.

    Raises:
        SpecError: another folder of this process's import paths has it.
    """
    with zipfile.ZipFile(io.BytesIO(packed.archive)) as archive:
        names = archive.namelist()
    for key, reference in code_references(specs.dump(packed.spec)).items():
        module = reference.rpartition(":")[0]
        if module.endswith(".py") or reference.startswith(PICKLE):
            continue
        package = module.partition(".")[0]
        for root in packed.paths:
            inside = (f"{root}/{package}.py", f"{root}/{package}/")
            if root != "." and any(name.startswith(inside) for name in names):
                message = f"{module} lies in {root}, and a server imports from the spec's folder"
                raise fail(message, *key, fix=f"write `folder: {root}`")


def _find_secrets(environment: Environment) -> dict[str, str]:
    """Return the secrets that are on this machine; the server may have the others."""
    secrets: dict[str, str] = {}
    for name, source in environment.secrets.items():
        with suppress(SpecError):
            secrets |= replace(environment, secrets={name: source}).reveal(os.environ)
    return secrets


def find_variables(
    spec: Mapping[str, object], variables: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the secrets of a server's spec that are variables here.

    Others may have written the spec, so no file that it names is read.
    """
    environment = spec.get("environment")
    named = environment.get("secrets") if isinstance(environment, Mapping) else None
    names = [name for name, source in read_secrets(named or {}).items() if name == source]
    return {name: variables[name] for name in names if variables.get(name)}


def secrets_for(server: ServedSweeps, status: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return this machine's values of a sweep's secrets, as a body has them.

    A sweep of others, whose code would get them, gets none.
    """
    if status["owner"] not in (None, server.http.get("me")["name"]):
        return {}
    variables = find_variables(server.facts(status["sweep"])["row"]["spec"])
    return {"secrets": variables} if variables else {}
