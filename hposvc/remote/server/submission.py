"""New sweeps for a server, with their files and secrets."""

import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hposvc import spec as specs
from hposvc.errors import SpecError, fail
from hposvc.journal.home import Home
from hposvc.remote.archive import EMPTY_ARCHIVE, SourceArchive, pack, private_paths, say_left_out
from hposvc.spec import SweepSpec
from hposvc.spec.environment import Environment, read_secrets
from hposvc.spec.paths import code_references
from hposvc.spec.variants import freeze
from hposvc.state.trial import OVER
from trainables.contract import PICKLE


def command_at(url: str, words: str) -> str:
    """Return the command of a verb for a server's sweeps, in a shell like this one.

    Args:
        words: the verb and its arguments, such as `status mnist-1`.
    """
    named = (os.environ.get("HPOSVC_SERVER") or "").rstrip("/") == url
    return f"hposvc {words}" if named else f"hposvc --server {url} {words}"


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
        command = command_at(self.server, f"status {self.sweep}")
        return [*texts, f"look at it by: {command}"]


def pack_body(
    home: Home, spec: SweepSpec, say: Callable[[str], None]
) -> tuple[dict[str, object], bytes | None]:
    """Return a sweep as the API takes it, and the archive of its files; None: it needs none.

    Args:
        home: of this machine; its files stay here.
        say: receives messages about the progress, for people.

    Raises:
        SpecError: a file is missing, or can't be sent.
    """
    with TemporaryDirectory() as folder:
        freeze(spec, versions := Path(folder))
        private = private_paths(home, spec)
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
    if packed.archive == EMPTY_ARCHIVE:
        return body, None
    return {**body, "archive": hashlib.sha256(packed.archive).hexdigest()}, packed.archive


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
