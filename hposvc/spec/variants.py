"""Code as a parameter: `code: {variants: [main, my-branch, patches/*.diff]}`.

`resolve` names the versions when a spec is read, `freeze` stores their files when a sweep begins;
from then on the repository is not asked again. The parameter is a choice among names like
`my-branch@1f3c9a2`, so that the same value means the same code in every sweep.
"""

import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hposvc.errors import fail, shown
from hposvc.spec.git_trees import Git
from trainables import load
from trainables.runtime.variants import CodeVariants

if TYPE_CHECKING:
    from hposvc.spec.sweep_spec import SweepSpec

log = logging.getLogger("hposvc")

KEY, PARAMETERS = "variants", "parameters"
TREE = re.compile("[0-9a-f]{40,64}")  # git's hash
NAMING = ("initial", "baseline", "finalists", PARAMETERS)  # sections that may name a variant
LISTED = 3  # files that a warning names


@dataclass(frozen=True)
class Variants:
    """The versions of the spec's folder among which a parameter chooses."""

    parameter: str
    trees: Mapping[str, str]  # git's hash of each version, by its name
    folder: str | None = None  # has the files of each version under its hash; None: not stored

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> "Variants | None":
        """Return the parameter of a resolved spec that chooses the code; None: there is none."""
        name = _find(parameters)
        if name is None:
            return None
        return cls(name, parameters[name][KEY], parameters[name].get("folder"))

    @property
    def path(self) -> tuple[str, ...]:
        """The key of the versions in a spec."""
        return (PARAMETERS, self.parameter, KEY)

    @property
    def travelled(self) -> bool:
        """Whether the files came with a submitted sweep, in a folder of its own."""
        return self.folder is not None and not Path(self.folder).is_absolute()

    @property
    def names(self) -> dict[str, str]:
        """The name of each version, by the name without the hash, as people write it."""
        return {name.rpartition("@")[0]: name for name in self.trees}

    def declared(self) -> dict[str, object]:
        """Return the parameter with its declaration."""
        return {self.parameter: {KEY: {**self.trees}, "folder": self.folder}}

    def for_ranks(self, spec_folder: str | None) -> CodeVariants:
        """Return what ranks need to run the versions."""
        top = Path(spec_folder or "", self.folder or "")
        folders = {name: f"{top / tree}" for name, tree in self.trees.items()}
        return CodeVariants(self.parameter, folders, spec_folder or "")


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
    git, found = Git(Path(f"{data.get('folder') or Path.cwd()}"), path), Variants(name, {})
    for source in sources:
        for full, tree in git.versions(source):
            short = full.rpartition("@")[0]
            if short in found.names:
                raise fail(f"has two versions named {short}", *path, fix="rename one of them")
            for twin in (other for other, known in found.trees.items() if known == tree):
                raise fail(f"{full} is the same code as {twin}", *path)
            found = replace(found, trees={**found.trees, full: tree})
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


def freeze(spec: "SweepSpec", folder: Path) -> "SweepSpec":
    """Store the files of all versions in a folder; return the spec with that.

    Those that travelled stay where they are.

    Raises:
        SpecError: the files can't be read or written.
    """
    variants = spec.variants
    if variants is None or variants.travelled:
        return spec
    git = Git(Path(spec.folder or Path.cwd()), variants.path)
    for tree in variants.trees.values():
        if variants.folder is None:
            git.write(tree, folder / tree)
            continue
        try:
            shutil.copytree(
                Path(variants.folder, tree), folder / tree, symlinks=True, dirs_exist_ok=True
            )
        except OSError as error:
            raise fail(f"can't be copied: {error}", *variants.path) from error
    if variants.folder is None and (changed := git.uncommitted()):
        names = ", ".join([*changed[:LISTED], *["..."] * (len(changed) > LISTED)])
        log.warning("changes in %s are not committed, so no version of the code has them", names)
    return with_variants(spec, replace(variants, folder=f"{folder}"))


def with_variants(spec: "SweepSpec", variants: Variants | None) -> "SweepSpec":
    """Return a spec with other places of its versions; None: it has none."""
    declared = {} if variants is None else variants.declared()
    return replace(spec, parameters={**spec.parameters, **declared})


def _find(parameters: Mapping[str, Any]) -> str | None:
    """Return the name of the parameter that chooses the code."""
    found = [name for name, given in parameters.items() if isinstance(given, dict) and KEY in given]
    if len(found) > 1:
        message = f"chooses the code, and so does {found[0]}"
        raise fail(message, PARAMETERS, found[1], KEY, fix="keep one", at_key=True)
    return found[0] if found else None
