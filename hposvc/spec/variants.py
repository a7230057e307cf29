"""Code as a parameter: `code: {variants: [main, my-branch, patches/*.diff]}`.

`resolve` names the versions when a spec is read, `freeze` stores their files when a sweep begins;
from then on the repository is not asked again, but for a version that joins it (`find`). The
parameter is a choice among names like `my-branch@1f3c9a2`, so that the same value means the same
code in every sweep.
"""

import glob
import logging
import re
import shutil
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hposvc.errors import SpecError, fail, shown
from hposvc.spec.git_trees import PATCHES, Git
from hposvc.text import listed
from searchers import Params, identity
from trainables import load
from trainables.contract import CodeVariants

if TYPE_CHECKING:
    from hposvc.spec.sweep_spec import SweepSpec

log = logging.getLogger("hposvc")

KEY, PARAMETERS = "variants", "parameters"
TRAVELLED = ".hposvc-variants"  # folder in the code of a submitted sweep, with that of all versions
TREE = re.compile("[0-9a-f]{40,64}")  # git's hash
NAMING = ("initial", "baseline", "finalists", PARAMETERS)  # sections that may name a variant


@dataclass(frozen=True)
class Variants:
    """The versions of the spec's folder among which a parameter chooses."""

    parameter: str
    trees: Mapping[str, str]  # git's hash of each version, by its name

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> "Variants | None":
        """Return the parameter of a resolved spec that chooses the code; None: there is none."""
        name = _find(parameters)
        return None if name is None else cls(name, parameters[name][KEY])

    @property
    def path(self) -> tuple[str, ...]:
        """The key of the versions in a spec."""
        return (PARAMETERS, self.parameter, KEY)

    @property
    def names(self) -> dict[str, str]:
        """The name of each version, by the name without the hash, as people write it."""
        return {name.rpartition("@")[0]: name for name in self.trees}

    def declared(self) -> dict[str, object]:
        """Return the parameter with its declaration."""
        return {self.parameter: {KEY: {**self.trees}}}

    def others(self, params: Params) -> Hashable:
        """Return the identity of a configuration but for its version of the code."""
        return identity({**params, self.parameter: ""})

    def named(self, name: str) -> str:
        """Return the whole name of a version; the name itself if there is none.

        Raises:
            SpecError: several versions have the name, but for the hashes.
        """
        full = [each for each in self.trees if name in (each, each.rpartition("@")[0])]
        if len(full) > 1 and name not in full:
            both = f"is the name of {' and of '.join(full)}"
            raise fail(both, *self.path, name, fix="add the hash")
        return name if name in full or not full else full[0]


def stored(spec: "SweepSpec", own: Path) -> Path:
    """Return the folder that has the files of each version, in a folder named by its hash.

    Args:
        own: where they are unless they travelled with the sweep's code.
    """
    sent = Path(spec.folder or "", TRAVELLED)
    return sent if sent.is_dir() else own


def for_ranks(spec: "SweepSpec", own: Path) -> CodeVariants | None:
    """Return what ranks need to run the versions; `own`: see `stored`."""
    if (variants := spec.variants) is None:
        return None
    return CodeVariants(variants.parameter, f"{stored(spec, own)}", spec.folder or "")


def resolve(data: dict[str, object]) -> dict[str, object]:
    """Return the data of a spec with versions in place of the names of commits and patches.

    Raises:
        SpecError: there is no such commit, patch or repository; two versions have the same files,
            or the same name; or the parameter has other keys.
    """
    parameters: Any = data.get(PARAMETERS)
    name = _find(parameters) if isinstance(parameters, dict) else None
    if name is None:
        return data
    path, sources = (PARAMETERS, name, KEY), parameters[name][KEY]
    if isinstance(sources, dict) and all(TREE.fullmatch(f"{tree}") for tree in sources.values()):
        return data  # resolved
    if not isinstance(sources, list) or not sources or not all(isinstance(x, str) for x in sources):
        fix = "give a list of texts: commits, and files of patches"
        raise fail(f"is {shown(sources)}", *path, fix=fix)
    if other := next((key for key in parameters[name] if key != KEY), ""):
        raise fail("is no key of a choice of code", *path[:2], other, fix="leave it out")
    if load.packages_allowed is not None:
        fix = "`hposvc submit` freezes them there"
        raise fail("are read where the repository is, not by a server", *path, fix=fix)
    git = Git(Path(f"{data.get('folder') or Path.cwd()}"), path)
    names: dict[str, str] = {}  # by the hash
    for full, tree in (version for source in sources for version in git.versions(source)):
        if tree in names:
            raise fail(f"{full} is the same code as {names[tree]}", *path)
        names[tree] = full
    found = Variants(name, {full: tree for tree, full in names.items()})
    if len(found.names) < len(names):
        message = f"has one name twice, but for the hashes: {', '.join(found.trees)}"
        raise fail(message, *path, fix="rename one of the two")
    if changed := git.changes():
        message = "changes in %s are not committed, so no version of the code has them"
        log.warning(message, listed(changed, 3))
    return with_versions(data, found, found.names)


def with_versions(
    data: Mapping[str, Any], variants: Variants, names: Mapping[str, str]
) -> dict[str, Any]:
    """Return the data of a spec with these versions, under other names where it names them."""

    def named(value: Any, here: bool = False) -> Any:
        if isinstance(value, dict):
            return {key: named(item, key == variants.parameter) for key, item in value.items()}
        if isinstance(value, list):
            return [named(item, here) for item in value]
        return names.get(value, value) if here else value

    renamed = {key: named(data[key]) for key in NAMING if key in data}
    return {**data, **renamed, PARAMETERS: {**renamed[PARAMETERS], **variants.declared()}}


def find(spec: "SweepSpec", source: str, sweep: str) -> tuple[str, str]:
    """Return name and git's hash of a version of the code that is to join a sweep.

    Args:
        source: a commit; or a patch, from the working folder or the spec's folder on.

    Raises:
        SpecError: there is no such version, or the sweep can't have it.
    """
    code, key = spec.variants, ("code",)
    if code is None:
        fix = "begin it with `parameters: {code: {variants: [main]}}` in its spec"
        raise fail(f"is given, and {sweep} has no choice of versions", *key, fix=fix)
    if load.packages_allowed is not None or stored(spec, Path()) != Path():
        fix = f"submit a sweep that has it, with `warm_start: {{from: {sweep}}}`"
        raise fail("is read where the repository is, not by a server", *key, fix=fix)
    if source.endswith(PATCHES) and Path(source).is_file():
        source = glob.escape(f"{Path(source).absolute()}")
    found = [*Git(Path(spec.folder or Path.cwd()), key).versions(source)]
    if len(found) > 1:
        raise fail(f"{source} matches {len(found)} patches", *key, fix="give one of them")
    [(name, tree)] = found
    known = next((each for each, theirs in code.trees.items() if theirs == tree), name)
    if code.trees.get(known, tree) != tree:
        raise fail(f"{name} is the name of other code there", *key, fix="rename the patch")
    return known, tree


def store(spec: "SweepSpec", tree: str, own: Path) -> None:
    """Store the files of a version that is to join a sweep; if that is cut off, there are none."""
    with TemporaryDirectory(dir=own) as scratch:
        Git(Path(spec.folder or Path.cwd()), ("code",)).write(tree, written := Path(scratch, tree))
        if not (own / tree).is_dir():
            written.rename(own / tree)


def already(code: Variants | None, new: Mapping[str, str]) -> str:
    """Return why a version can't join a sweep; empty: it can."""
    if code is None:
        return "the sweep has no choice of versions of the code"
    both = [name for name, tree in code.trees.items() if name in new or tree in new.values()]
    return f"the sweep has it as {both[0]}" if both else ""


def freeze(spec: "SweepSpec", own: Path, others: Sequence[Path] = ()) -> None:
    """Store the files of all versions in a folder, unless they travelled with the sweep's code.

    Args:
        own: see `stored`.
        others: such folders of earlier sweeps, which have what a repository has no more.

    Raises:
        SpecError: a version is nowhere.
    """
    variants = spec.variants
    if variants is None or stored(spec, own) != own:
        return
    git = Git(Path(spec.folder or Path.cwd()), variants.path)
    for tree in variants.trees.values():
        try:
            if load.packages_allowed is not None:  # whose git would read settings of users
                raise fail("are not on this server", *variants.path)
            git.write(tree, own / tree)
        except SpecError:
            source = next((other / tree for other in others if (other / tree).is_dir()), None)
            if source is None:
                raise
            shutil.rmtree(own / tree, ignore_errors=True)  # what a killed copy left
            shutil.copytree(source, own / tree, symlinks=True)


def _find(parameters: Mapping[str, Any]) -> str | None:
    """Return the name of the parameter that chooses the code."""
    found = [name for name, given in parameters.items() if isinstance(given, dict) and KEY in given]
    if len(found) > 1:
        message = f"chooses the code, and so does {found[0]}"
        raise fail(message, PARAMETERS, found[1], KEY, fix="keep one", at_key=True)
    return found[0] if found else None
