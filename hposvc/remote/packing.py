"""What travels to a cluster with a sweep: our packages, and the user's folder, as zip archives.

The user's folder is `environment.working_dir`; or else the present folder, if the trainable's
source lies in it, or something that the command names; or else nothing, since the cluster must have
the trainable anyhow. git says what of it counts, each repository inside of it for itself: neither
what a .gitignore names nor what `environment.excludes` does. Homes, storages and databases stay
here. The same files make the same archive, byte for byte.
"""

import fnmatch
import hashlib
import importlib.util
import io
import os
import shutil
import stat
import subprocess
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath

from cluster.jobs import MOST_BYTES
from hposvc import source
from hposvc.reading.problems import SpecError, fail
from hposvc.spec import SweepSpec
from trainables import load

PACKAGES = ("hposvc", "searchers", "trainables", "cluster")
NEVER = frozenset({".git", ".venv", "venv", "__pycache__"})
MOST_READ_BYTES = 512 * 2**20  # before compression; it bounds how long too large a folder is read
PICKLES = ".hposvc-pickles"  # in the archive: functions that no name finds
LISTED = 5  # large files that an error names


@dataclass(frozen=True)
class Packed:
    """A sweep that is ready to travel."""

    spec: SweepSpec  # its references as they hold in the archive
    archive: bytes  # the user's folder
    paths: tuple[str, ...]  # folders of the archive to import from
    elsewhere: tuple[str, ...] = ()  # checksums of files that the command names and that stay here

    @property
    def code(self) -> str:
        """What tells the files of sweeps apart."""
        return hashlib.sha256(repr(self.elsewhere).encode() + self.archive).hexdigest()

    def digest(self, spec: dict[str, object]) -> str:
        """What tells sweeps apart: the frozen spec, and all files that go along."""
        return hashlib.sha256(f"{spec!r} {self.code}".encode()).hexdigest()


def pack(
    spec: SweepSpec, folder: Path, paths: Sequence[str], private: Sequence[Path] = ()
) -> Packed:
    """Collect what a sweep needs.

    Args:
        folder: where relative names of the spec begin.
        paths: what this process imports from; what of it lies in the folder holds there too.
        private: files and folders that stay here wherever they lie, as the spec's secrets do.

    Raises:
        SpecError: the folder is too large, or what the spec names does not lie in it.
    """
    top = _top(spec, folder)
    spec, files = _pickled(spec)
    if top is None:
        spec, elsewhere = _with_command(spec, folder, None, ())
        return Packed(spec, _zip(files), (), elsewhere)
    stay = {(folder / path).resolve() for path in (*private, *spec.environment.files)}
    names = _travelling(top, _files(top, spec.environment.excludes), stay)
    spec, elsewhere = _with_command(_moved(spec, folder, top, names), folder, top, names)
    seen = (_inside(Path(path or folder), top) for path in paths)
    roots = dict.fromkeys(root for root in seen if root is not None)
    archive = _archive(top, [*files, *names.items()])
    return Packed(spec, archive, tuple(roots), elsewhere)


def pack_ours() -> bytes:
    """Our own packages, so that the cluster runs this very version."""
    files = []
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        top = Path(spec.origin).parent
        found = (path for path in top.rglob("*") if path.is_file())
        files += [
            (f"{package}/{path.relative_to(top).as_posix()}", path)
            for path in found
            if NEVER.isdisjoint(path.parts[len(top.parts) :])
        ]
    return _zip(files)


def _top(spec: SweepSpec, folder: Path) -> Path | None:
    """The folder that travels; None: none."""
    given = spec.environment.working_dir
    if given is not None:
        top = (folder / Path(given).expanduser()).resolve()
        if not top.is_dir():
            raise fail(f"there is no folder {top}", "environment", "working_dir")
        return top
    top = folder.resolve()
    own = (_inside(file, top) for file in _sources(spec, folder))
    return top if any(name is not None for name in own) else None


def _sources(spec: SweepSpec, folder: Path) -> list[Path]:
    """The files that hold what trials run; none: it is pickled, or one of our own."""
    if spec.command is not None:
        return _mentioned(spec.command, folder)
    reference = spec.trainable or spec.engine.curve
    if reference is None or reference.startswith(load.PICKLE):
        return []
    place = reference.rpartition(":")[0]
    if place.endswith(".py"):
        return [folder / Path(place).expanduser()]
    found = importlib.util.find_spec(place)
    ours = place.partition(".")[0] in PACKAGES
    return [] if ours or found is None or found.origin is None else [Path(found.origin)]


def _mentioned(command: Sequence[str], folder: Path) -> list[Path]:
    """The files that a command names: as an item, in a line for a shell, or by `-m`."""
    words = [word for item in command for word in item.split()]
    modules = [name.replace(".", "/") for flag, name in pairwise(words) if flag == "-m"]
    scripts = [f"{module}{end}" for module in modules for end in (".py", "/__main__.py")]
    return [*source.named([*command, *words, *scripts], folder).values()]


def _with_command(
    spec: SweepSpec, folder: Path, top: Path | None, names: Collection[str]
) -> tuple[SweepSpec, tuple[str, ...]]:
    """The spec with the files of its command named as the archive has them.

    Returns:
        the spec, and the checksums of files that are not in the archive: the nodes must have
        them at the same absolute path.
    """
    items, elsewhere = list(spec.command or ()), []
    for number, item in enumerate(items):
        file = source.named([item], folder).get(item)
        if file is None or (number == 0 and "/" not in item):  # a program of PATH
            continue
        name = None if top is None else _inside(file, top)
        if name in names:
            items[number] = f"./{name}" if number == 0 else f"{name}"
        elif Path(item).is_absolute():
            elsewhere.append(source.checksum(file))
        else:
            raise _missing(item, top or folder.resolve(), name, "command")
    return (replace(spec, command=tuple(items)) if items else spec), tuple(elsewhere)


def _missing(place: str, top: Path, name: str | None, key: str) -> SpecError:
    """What to say of a file that trials need and that does not travel."""
    if name is None:
        message = f"{place} does not lie in {top}, the folder that travels; move it there"
        return fail(f"{message}, or set environment.working_dir", key)
    message = "stays here: it is in the home or the storage, or .gitignore or excludes name it"
    return fail(f"{place} {message}", key)


def _inside(path: Path, top: Path) -> str | None:
    """The path as seen from the top; None: it lies elsewhere."""
    path = path.resolve()
    return path.relative_to(top).as_posix() if path.is_relative_to(top) else None


def _moved(spec: SweepSpec, folder: Path, top: Path, names: Collection[str]) -> SweepSpec:
    """The spec with its trainable's file named as the archive has it."""
    place, _, name = (spec.trainable or "").rpartition(":")
    if not place.endswith(".py"):
        return spec
    inside = _inside(folder / Path(place).expanduser(), top)
    if inside not in names:
        raise _missing(place, top, inside, "trainable")
    return replace(spec, trainable=f"{inside}:{name}")


def _pickled(spec: SweepSpec) -> tuple[SweepSpec, list[tuple[str, Path]]]:
    """The spec with its pickled trainable named as the archive has it, and that file."""
    if spec.trainable is None or not spec.trainable.startswith(load.PICKLE):
        return spec, []
    file = Path(spec.trainable.removeprefix(load.PICKLE))
    inside = f"{PICKLES}/{file.name}"
    return replace(spec, trainable=f"{load.PICKLE}{inside}"), [(inside, file)]


def _files(top: Path, excludes: Sequence[str]) -> list[str]:
    """The files of a folder that count, as paths from it."""
    names = _known_to_git(top)
    return sorted(
        name
        for name in names
        if NEVER.isdisjoint(PurePosixPath(name).parts)
        and not _excluded(name, excludes)
        and (top / name).is_file()
    )


def _travelling(top: Path, names: Sequence[str], stay: Collection[Path]) -> dict[str, Path]:
    """Those of the files that are private in no way: by their name, and where they are."""
    if top in stay:
        message = f"{top} is the home or the storage too, and these stay here; put them elsewhere"
        raise fail(message, "environment", "working_dir")
    # A home or a storage that the whole folder lies in says nothing of what is in the folder.
    kept = {path for path in stay if not top.is_relative_to(path)}
    return {
        name: top / name
        for name in names
        if kept.isdisjoint((path := (top / name).resolve(), *path.parents))
    }


def _known_to_git(top: Path) -> list[str]:
    """What no .gitignore names, of repositories inside of it too."""
    found = []
    for name in _listed(top):
        inner = top / name  # git names a repository and does not look inside
        nested = inner.is_dir() and not inner.is_symlink() and (inner / ".git").exists()
        inside = _known_to_git(inner) if nested else []
        found += [f"{name.rstrip('/')}/{file}" for file in inside] if nested else [name]
    return found


def _listed(top: Path) -> list[str]:
    """What git says of a folder; it says it of one that is no repository, too."""
    if shutil.which("git") is None:
        if next(top.rglob(".gitignore"), None) is not None:
            message = f"{top} has a .gitignore, and there is no git here to read it; install git"
            raise fail(message, "environment", "working_dir")
        return [path.relative_to(top).as_posix() for path in top.rglob("*")]
    listing = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    done = subprocess.run(["git", "-C", top, *listing], capture_output=True)
    if done.returncode:  # no repository: an empty one elsewhere, with this folder for its files
        with tempfile.TemporaryDirectory() as empty:
            subprocess.run(["git", "init", "-q", "--bare", empty], check=True)
            beside = ("--git-dir", empty, "--work-tree", top)
            done = subprocess.run(["git", *beside, *listing], capture_output=True, cwd=top)
    if done.returncode:
        text = done.stderr.decode(errors="replace").strip()
        raise fail(f"git can't list {top}: {text}", "environment", "working_dir")
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def _excluded(name: str, excludes: Sequence[str]) -> bool:
    """Whether a pattern names the file or a folder above it, by its name or its path."""
    path = PurePosixPath(name)
    above = [path, *path.parents][:-1]
    return any(
        fnmatch.fnmatchcase(str(part), pattern.strip("/"))
        or fnmatch.fnmatchcase(part.name, pattern.strip("/"))
        for pattern in excludes
        for part in above
    )


def _archive(top: Path, files: Sequence[tuple[str, Path]]) -> bytes:
    if sum(path.stat().st_size for _, path in files) > MOST_READ_BYTES:
        raise _too_large(top, files, f"more than {MOST_READ_BYTES // 2**20} MiB")
    archive = _zip(files)
    if len(archive) >= MOST_BYTES:
        what = f"{len(archive) / 2**20:.0f} MiB compressed, and Ray takes {MOST_BYTES // 2**20} MiB"
        raise _too_large(top, files, what)
    return archive


def _too_large(top: Path, files: Sequence[tuple[str, Path]], what: str) -> SpecError:
    """What to tell someone whose folder does not fit, with its largest files."""
    sizes = sorted(((path.stat().st_size, name) for name, path in files), reverse=True)
    largest = ", ".join(f"{name} ({size / 2**20:.1f} MiB)" for size, name in sizes[:LISTED])
    message = f"{top} is {what}; leave files out by .gitignore or environment.excludes"
    return fail(f"{message}; the largest are {largest}", "environment", "working_dir")


def _zip(files: Sequence[tuple[str, Path]]) -> bytes:
    """An archive that depends on names, contents and modes alone."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in _entries(files):
            entry = zipfile.ZipInfo(name)  # its date is always 1980
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, mode << 16
            archive.writestr(entry, content)
    return written.getvalue()


def _entries(files: Sequence[tuple[str, Path]]) -> Iterator[tuple[str, bytes, int]]:
    for name, path in sorted(files):
        executable = path.stat().st_mode & stat.S_IXUSR
        yield name, path.read_bytes(), 0o755 if executable else 0o644


NOTHING = _zip([])  # the archive of a job that needs no file of the user's
