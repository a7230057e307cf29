"""Zip archives sent to a cluster with a sweep: hposvc's own packages, and the user's folder.

The user's folder is `environment.working_dir`; else the spec's folder, if the source of the
trainable or of a plug-in, or a file named by the command, lies in it; else none, since the cluster
must have the code anyhow. Of that folder, git lists the files to send, and nested repositories list
their own: files that a .gitignore or `environment.excludes` names are left out. Homes, storages and
databases stay here, and so do files that look like secrets, unless `environment.includes` names
them. A link that leads out of the folder is refused. The same files always make the same archive,
byte for byte.
"""

import fnmatch
import importlib.util
import io
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from cluster.jobs import MOST_BYTES
from cluster.runtime_env import files_in, is_uri, read
from hposvc import spec as specs
from hposvc.errors import KeyPath, SpecError, fail
from hposvc.journal.home import Home
from hposvc.remote.job_payload import databases
from hposvc.spec import SweepSpec, fingerprint
from hposvc.spec.git_trees import Git
from hposvc.spec.paths import code_references, replace_text
from hposvc.spec.variants import TRAVELLED
from trainables import load
from trainables.contract import is_url

PACKAGES = ("hposvc", "searchers", "trainables", "cluster")
NEVER = frozenset({".git", ".venv", "venv", "__pycache__", TRAVELLED})
# Before compression; refuses a folder that is too large without reading all of it.
MAX_READ_BYTES = 512 * 2**20
PICKLES = ".hposvc-pickles"  # folder in the archive for functions that can't be imported by name
LISTED = 5  # files that an error, or a message, names at most
TOKEN = Path("~/.ray/auth_token")  # Ray's default token file
PRIVATE = ("HPOSVC_DB_FILE", "RAY_AUTH_TOKEN_PATH")  # variables that name a file with a password
SECRETS = (  # names of files that hold passwords, tokens or private keys
    *(".env", ".env.*", ".netrc", ".pypirc", ".pgpass", ".git-credentials", "credentials.json"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*.pem", "*.key", "*.p12", "*.pfx"),
)


@dataclass(frozen=True)
class SourceArchive:
    """A sweep's spec and files, ready to be sent to a cluster."""

    spec: SweepSpec  # with references that hold inside the archive
    archive: bytes  # the user's folder, zipped
    paths: tuple[str, ...]  # folders of the archive to import from
    left_out: tuple[str, ...] = ()  # files left out because they look like secrets


def list_all(top: Path) -> list[str]:
    """Return the relative paths of all files in a folder."""
    return [path.relative_to(top).as_posix() for path in top.rglob("*")]


def list_unignored(top: Path) -> list[str]:
    """Return the files that no .gitignore names, including those of nested repositories."""
    names = []
    for name in _git_files(top):
        inner = top / name  # git lists a nested repository as one name, without its files
        nested = inner.is_dir() and not inner.is_symlink() and (inner / ".git").exists()
        nested_names = list_unignored(inner) if nested else []
        names += [f"{name.rstrip('/')}/{file}" for file in nested_names] if nested else [name]
    return names


def pack(
    spec: SweepSpec,
    folder: Path,
    paths: Sequence[str],
    private: Sequence[Path] = (),
    list_files: Callable[[Path], list[str]] = list_unignored,
    versions: Path = Path(),
) -> SourceArchive:
    """Collect the files that a sweep needs on a cluster.

    Args:
        folder: the folder to which the spec's paths are relative.
        paths: this process's import paths; those inside the folder become import paths there.
        private: files and folders that are never sent, like the files of the spec's secrets.
        list_files: lists a folder's files, by their relative paths. git reads the configuration of
            the folder, which can run programs, so the folder must be the user's own.
        versions: has the files of each version of the code, if there are several.

    Raises:
        SpecError: the folder is too large, or a file that the spec names does not lie in it.
    """
    top, works_in = _folder_to_send(spec, folder), Path(spec.works_in or folder)
    there = folder.resolve()
    stay = {(folder / path).resolve() for path in (*private, *spec.environment.files)}
    private_names = [path.relative_to(there) for path in stay if path.is_relative_to(there)]
    left_out: list[str] = []

    def choose(top: Path, names: Sequence[str]) -> dict[str, Path]:
        top = top.resolve()
        private_paths = {*stay, *(top / name for name in private_names)}  # in each version, too
        names = _candidate_files(top, names, spec.environment.excludes)
        secrets = [name for name in names if _is_secret(name, spec.environment.includes)]
        left_out.extend(secrets)
        others = [name for name in names if name not in {*secrets}]
        chosen = _without_private(top, others, private_paths)
        _check_links(top, chosen)
        return chosen

    runtime_env = _sendable_environment(spec.environment.runtime_env)
    spec = replace(spec, environment=replace(spec.environment, runtime_env=runtime_env))
    spec, files = _relocate_pickles(spec)
    for tree in () if spec.variants is None else spec.variants.trees.values():
        chosen = choose(versions / tree, list_all(versions / tree))
        files += [(f"{TRAVELLED}/{tree}/{name}", path) for name, path in chosen.items()]
    names, relative_paths = {}, []
    if top is not None:
        names = choose(top, list_files(top))
        spec = _relocate_code(spec, folder, top, names)
        relative_paths = [_relative_to(Path(path or folder), top) for path in paths]
    spec = _relocate_command(spec, works_in, top, names)
    roots = dict.fromkeys(root for root in relative_paths if root is not None)
    archive = _archive(top or folder, [*files, *names.items()])
    return SourceArchive(
        _without_folders(spec), archive, tuple(roots), tuple(dict.fromkeys(left_out))
    )


def _without_folders(spec: SweepSpec) -> SweepSpec:
    """Return the spec without this machine's folders: trials work in the folder that was sent."""
    return replace(spec, folder=None, environment=replace(spec.environment, working_dir=None))


def say_left_out(packed: SourceArchive, say: Callable[[str], None]) -> None:
    """Say which files are not sent, if some are not because they may hold secrets."""
    if packed.left_out:
        names = ", ".join(packed.left_out[:LISTED])
        more = ", ..." if packed.left_out[LISTED:] else ""
        say(f"left here, as they may hold secrets: {names}{more}; environment.includes sends them")


def private_paths(home: Home, spec: SweepSpec) -> list[Path]:
    """Return paths that are never sent, even from inside the folder: tokens, data, results."""
    password_files = [Path(os.environ[name]) for name in PRIVATE if os.environ.get(name)]
    is_folder = spec.storage is not None and not is_url(spec.storage)
    storage = [Path(f"{spec.storage}").expanduser()] if is_folder else []
    return [*password_files, TOKEN.expanduser(), home.path, *storage, *databases(home, spec)]


def pack_own_packages() -> bytes:
    """Zip hposvc's own packages, so that the cluster runs this very version."""
    files = []
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        top = Path(spec.origin).parent
        package_files = (path for path in top.rglob("*") if path.is_file())
        files += [
            (f"{package}/{path.relative_to(top).as_posix()}", path)
            for path in package_files
            if NEVER.isdisjoint(path.parts[len(top.parts) :])
        ]
    return _zip(files)


def _sendable_environment(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a runtime environment with the content of files that it names.

    Raises:
        SpecError: it names folders of this machine, which would have to be sent too.
    """
    place = ("environment", "runtime_env")
    if "working_dir" in given:
        fix = "set environment.working_dir, or start the driver by `ray job submit`"
        raise fail("is the folder that is sent", *place, "working_dir", fix=fix)
    for number, module in enumerate(given.get("py_modules", ())):
        if not is_uri(module):
            fix = "move it into the spec's folder, which is sent, or give a URI"
            raise fail(f"{module} is not sent", *place, "py_modules", number, fix=fix)
    return {**given, **{key: read(given)[key] for key in files_in(given)}}


def _folder_to_send(spec: SweepSpec, folder: Path) -> Path | None:
    """Return the folder to send; None: no folder is sent."""
    working_dir = spec.environment.working_dir
    if working_dir is not None:
        top = (folder / Path(working_dir).expanduser()).resolve()
        if not top.is_dir():
            raise fail(f"there is no folder {top}", "environment", "working_dir")
        return top
    top = folder.resolve()
    inside = (_relative_to(file, top) for file in _source_files(spec, folder))
    return top if any(name is not None for name in inside) else None


def _source_files(spec: SweepSpec, folder: Path) -> list[Path]:
    """Return the source files that a sweep runs, but for pickles and hposvc's own."""
    references = code_references(specs.dump(spec)).values()
    files = [file for reference in references for file in _source_file(reference, folder)]
    return [*files, *fingerprint.files_in_command(spec.program_items, folder).values()]


def _source_file(reference: str, folder: Path) -> list[Path]:
    """Return the source file of a reference; empty: it has none, or is hposvc's own."""
    module = reference.rpartition(":")[0]
    if reference.startswith(load.PICKLE) or module.partition(".")[0] in PACKAGES:
        return []
    if module.endswith(".py"):
        return [folder / Path(module).expanduser()]
    module_spec = importlib.util.find_spec(module)
    return [] if module_spec is None or module_spec.origin is None else [Path(module_spec.origin)]


def _relocate_command(
    spec: SweepSpec, folder: Path, top: Path | None, names: Collection[str]
) -> SweepSpec:
    """Replace the file names in the spec's programs by their names in the archive.

    Files outside the archive must be on the nodes, at the same absolute paths.
    """
    renamed = {
        key: _relocated(items, key, folder, top, names) for key, items in spec.programs.items()
    }
    if spec.serve is None:
        return replace(spec, command=renamed.get(("command",)))
    server, load = renamed.values()
    return replace(spec, command=load, serve=replace(spec.serve, command=server, load=load))


def _relocated(
    command: Sequence[str], key: KeyPath, folder: Path, top: Path | None, names: Collection[str]
) -> tuple[str, ...]:
    items = list(command)
    for position, item in enumerate(items):
        file = fingerprint.files_among([item], folder).get(item)
        if file is None or (position == 0 and "/" not in item):  # a program found on PATH
            continue
        name = None if top is None else _relative_to(file, top)
        if name in names:
            items[position] = f"./{name}" if position == 0 else f"{name}"
        elif not Path(item).is_absolute():
            raise _not_sent(item, top or folder.resolve(), name, *key)
    return tuple(items)


def _not_sent(place: str, top: Path, name: str | None, *key: str | int) -> SpecError:
    """Return the error for a file that a sweep needs but that is not sent."""
    if name is None:
        message = f"{place} does not lie in {top}, the folder that travels; move it there"
        return fail(f"{message}, or set environment.working_dir", *key)
    message = (
        "stays here: it is in the home or the storage, .gitignore or excludes name it, or its name "
        "looks like a secret's and includes does not name it"
    )
    return fail(f"{place} {message}", *key)


def _relative_to(path: Path, top: Path) -> str | None:
    """Return the path relative to `top`; None: it is outside `top`."""
    path = path.resolve()
    return path.relative_to(top).as_posix() if path.is_relative_to(top) else None


def _relocate_code(spec: SweepSpec, folder: Path, top: Path, names: Collection[str]) -> SweepSpec:
    """Replace the files of the spec's trainable and plug-ins by their names in the archive."""
    data = specs.dump(spec)
    for place, reference in code_references(data).items():
        file, _, name = reference.rpartition(":")
        if file.endswith(".py"):
            inside = _relative_to(folder / Path(file).expanduser(), top)
            if inside not in names:
                raise _not_sent(file, top, inside, *place)
            data = replace_text(data, place, f"{inside}:{name}")
    return replace(specs.thaw(data), warm_start=spec.warm_start)


def _relocate_pickles(spec: SweepSpec) -> tuple[SweepSpec, list[tuple[str, Path]]]:
    """Replace references of pickled code by names in the archive; return the files too."""
    data, files = specs.dump(spec), []
    for place, reference in code_references(data).items():
        if reference.startswith(load.PICKLE):
            file = Path(reference.removeprefix(load.PICKLE))
            inside = f"{PICKLES}/{file.name}"
            data = replace_text(data, place, f"{load.PICKLE}{inside}")
            files.append((inside, file))
    return replace(specs.thaw(data), warm_start=spec.warm_start) if files else spec, files


def _candidate_files(top: Path, names: Sequence[str], excludes: Sequence[str]) -> list[str]:
    """Return those of the names in a folder that are files, and that `excludes` does not name."""
    return sorted(
        name
        for name in names
        if NEVER.isdisjoint(PurePosixPath(name).parts)
        and not _matches(name, excludes)
        and ((top / name).is_file() or _is_linked_folder(top / name))
    )


def _is_linked_folder(path: Path) -> bool:
    return path.is_symlink() and path.is_dir()


def _is_secret(name: str, includes: Sequence[str]) -> bool:
    """Whether a file looks like a secret, and the spec's `includes` does not name it."""
    file = PurePosixPath(name).name
    return any(fnmatch.fnmatchcase(file, secret) for secret in SECRETS) and not _matches(
        name, includes
    )


def _check_links(top: Path, names: Mapping[str, Path]) -> None:
    """Check that no link leads out of the folder or to a folder: its files would be missing.

    Raises:
        SpecError: some links do.
    """
    linked = [name for name, path in names.items() if _is_linked_folder(path)]
    linked += [name for name, path in names.items() if _relative_to(path, top) is None]
    if not linked:
        return
    unique = dict.fromkeys(linked)
    links = ", ".join(f"{name} -> {names[name].resolve()}" for name in [*unique][:LISTED])
    message = f"links that lead out of {top} or to folders don't travel: {links}"
    remedy = "put the files there, or leave the links out by .gitignore or environment.excludes"
    raise fail(message, "environment", "working_dir", fix=remedy)


def _without_private(top: Path, names: Sequence[str], stay: Collection[Path]) -> dict[str, Path]:
    """Return the files to send, by name, without those in private files and folders (`stay`)."""
    if top in stay:
        message = f"{top} is the home or the storage too, and these stay here; put them elsewhere"
        raise fail(message, "environment", "working_dir")
    # A home or storage that contains `top` does not make the files in `top` private.
    private_paths = {path for path in stay if not top.is_relative_to(path)}
    return {
        name: top / name
        for name in names
        if private_paths.isdisjoint((path := (top / name).resolve(), *path.parents))
    }


def _git_files(top: Path) -> list[str]:
    """List a folder with git's ignore rules, even if the folder is no repository.

    Raises:
        SpecError: git fails, or it is missing and the folder has a .gitignore.
    """
    if shutil.which("git") is None:
        if next(top.rglob(".gitignore"), None) is not None:
            message = f"{top} has a .gitignore, and there is no git here to read it; install git"
            raise fail(message, "environment", "working_dir")
        return list_all(top)
    listing = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    git = Git(top, ("environment", "working_dir"))
    try:
        listed = git.run(*listing)
    except SpecError:  # no repository: use an empty one, with this folder as its work tree
        with tempfile.TemporaryDirectory() as empty:
            git.run("init", "-q", "--bare", empty)
            listed = git.run("--git-dir", empty, "--work-tree", f"{top}", *listing)
    return [name for name in listed.split("\0") if name]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches the file or a folder above it, by name or by path."""
    path = PurePosixPath(name)
    parts = [path, *path.parents][:-1]
    return any(
        fnmatch.fnmatchcase(str(part), pattern.strip("/"))
        or fnmatch.fnmatchcase(part.name, pattern.strip("/"))
        for pattern in patterns
        for part in parts
    )


def _archive(top: Path, files: Sequence[tuple[str, Path]]) -> bytes:
    for name, path in files:
        _check_file(name, path)
    if sum(path.stat().st_size for _, path in files) > MAX_READ_BYTES:
        raise _too_large(top, files, f"more than {MAX_READ_BYTES // 2**20} MiB")
    archive = _zip(files)
    if len(archive) >= MOST_BYTES:
        problem = (
            f"{len(archive) / 2**20:.0f} MiB compressed, and Ray takes {MOST_BYTES // 2**20} MiB"
        )
        raise _too_large(top, files, problem)
    return archive


def _check_file(name: str, path: Path) -> None:
    """Check that a file can be sent.

    Raises:
        SpecError: this user may not read the file, or its name is not UTF-8.
    """
    remedy = "leave it out by .gitignore or environment.excludes"
    if not os.access(path, os.R_OK):
        raise fail(f"{path} can't be read", "environment", "working_dir", fix=remedy)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        message = f"the name {os.fsencode(name)!r} is not UTF-8; rename the file, or {remedy}"
        raise fail(message, "environment", "working_dir") from error


def _too_large(top: Path, files: Sequence[tuple[str, Path]], problem: str) -> SpecError:
    """Return the error for a folder that is too large, with its largest files."""
    sizes = sorted(((path.stat().st_size, name) for name, path in files), reverse=True)
    largest = ", ".join(f"{name} ({size / 2**20:.1f} MiB)" for size, name in sizes[:LISTED])
    fix = f"leave files out by .gitignore or environment.excludes; the largest are {largest}"
    return fail(f"{top} is {problem}", "environment", "working_dir", fix=fix)


def _zip(files: Sequence[tuple[str, Path]]) -> bytes:
    """Zip the files into an archive that depends only on names, contents and modes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in _entries(files):
            entry = zipfile.ZipInfo(name)  # with the constant date 1980
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, mode << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


def _entries(files: Sequence[tuple[str, Path]]) -> Iterator[tuple[str, bytes, int]]:
    for name, path in sorted(files):
        executable = path.stat().st_mode & stat.S_IXUSR
        yield name, path.read_bytes(), 0o755 if executable else 0o644


EMPTY_ARCHIVE = _zip([])  # the archive of a job that needs no files of the user's
