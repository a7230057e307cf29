"""Code as a parameter: `code: {variants: [main, my-branch, patches/*.diff]}`.

`resolve` names the versions when a spec is read, `freeze` stores their files when a sweep begins;
from then on the repository is not asked again. The parameter is a choice among names like
`my-branch@1f3c9a2`, so that the same value means the same code in every sweep.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hposvc.errors import SpecError, fail, shown
from hposvc.spec.git_trees import Git
from trainables import load
from trainables.runtime.variants import CodeVariants

if TYPE_CHECKING:
    from hposvc.spec.sweep_spec import SweepSpec

KEY, PARAMETERS = "variants", "parameters"
TREE = re.compile("[0-9a-f]{40,64}")  # git's hash
NAMING = ("initial", "baseline", "finalists", PARAMETERS)  # sections that may name a variant


@dataclass(frozen=True)
class Variants:
    """The versions of the spec's folder among which a parameter chooses."""

    parameter: str
    entries: tuple[Any, ...]  # sources as written; once resolved, mappings: name, source, tree
    archives: str | None  # the folder of their files, `TREE.tar`; None: they are not stored

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> "Variants | None":
        """Return the parameter that chooses the code; None: there is none.

        Raises:
            SpecError: there are two, or it gives no list of texts.
        """
        found = [name for name in parameters if _chooses_code(parameters[name])]
        if len(found) > 1:
            message = f"chooses the code, and so does {found[0]}"
            raise fail(message, PARAMETERS, found[1], KEY, fix="keep one", at_key=True)
        for name in found:
            entries = parameters[name][KEY]
            if not isinstance(entries, list | tuple) or not entries:
                fix = "give a list of commits, and of files of patches"
                raise fail(f"is {shown(entries)}", PARAMETERS, name, KEY, fix=fix)
            resolved = [entry for entry in entries if isinstance(entry, Mapping)]
            if not all(_is_resolved(entry) for entry in resolved):
                fix = "give commits, and files of patches, as texts"
                raise fail("is no list of texts", PARAMETERS, name, KEY, fix=fix)
            return cls(name, tuple(entries), parameters[name].get("archives"))
        return None

    @property
    def path(self) -> tuple[str, ...]:
        """The key of the versions in a spec."""
        return (PARAMETERS, self.parameter, KEY)

    @property
    def trees(self) -> dict[str, str]:
        """git's hash of each version, by its name."""
        return {entry["name"]: entry["tree"] for entry in self.entries}

    def declared(self) -> dict[str, object]:
        """Return the declaration of the parameter."""
        return {KEY: [*self.entries], "archives": self.archives}

    def read(self, folder: Path, archives: Path | None) -> "Variants":
        """Return the versions as the repository has them; store their files, unless None.

        Raises:
            SpecError: there is no such commit, patch or repository, or a version is there twice.
        """
        path: tuple[str | int, ...] = self.path
        found: dict[str, dict[str, str]] = {}
        with TemporaryDirectory() as scratch:
            try:
                git = Git.at(folder, Path(scratch))
                for number, entry in enumerate(self.entries):
                    path = (*self.path, number)
                    for version in git.versions(
                        entry if isinstance(entry, str) else entry["source"]
                    ):
                        if twin := found.get(version["tree"]):
                            raise fail(f"{version['source']} is the same code as {twin['source']}")
                        found[version["tree"]] = version
                        if archives is not None:
                            git.write(version["tree"], archives / f"{version['tree']}.tar")
            except SpecError as error:
                raise SpecError(problem.under(*path) for problem in error.problems) from error
        return Variants(self.parameter, (*found.values(),), f"{archives}" if archives else None)

    def for_ranks(self, folder: str | None) -> CodeVariants:
        """Return what ranks need to run the versions; `folder`: the spec's."""
        archives = Path(folder or "") / (self.archives or "")
        return CodeVariants(self.parameter, self.trees, f"{archives}", folder or "")


def resolve(data: dict[str, object]) -> dict[str, object]:
    """Return the data of a spec with versions in place of the names of commits and patches.

    Raises:
        SpecError: see `Variants.read`.
    """
    parameters: Any = data.get(PARAMETERS)
    variants = Variants.of(parameters) if isinstance(parameters, dict) else None
    if variants is None or all(isinstance(entry, Mapping) for entry in variants.entries):
        return data
    if not all(isinstance(entry, str) for entry in variants.entries):
        raise fail("has more than names of commits and files", *variants.path)
    if load.packages_allowed is not None:
        fix = "`hposvc submit` freezes them there"
        raise fail("are read where the repository is, not by a server", *variants.path, fix=fix)
    found = variants.read(Path(f"{data.get('folder') or Path.cwd()}"), None)
    short = {name.rpartition("@")[0]: name for name in found.trees}
    named = {key: _named(data[key], found.parameter, short) for key in NAMING if key in data}
    return {**data, **named, PARAMETERS: {**named[PARAMETERS], found.parameter: found.declared()}}


def _named(value: Any, parameter: str, names: Mapping[str, str], here: bool = False) -> Any:
    """Return a value with full names of versions where the parameter has short ones."""
    if isinstance(value, Mapping):
        return {
            key: _named(item, parameter, names, key == parameter) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_named(item, parameter, names, here) for item in value]
    return names.get(value, value) if here and isinstance(value, str) else value


def freeze(spec: "SweepSpec", archives: Path) -> "SweepSpec":
    """Store the files of all versions in a folder, unless they are; return the spec with that.

    Raises:
        SpecError: a branch or a patch has changed since the spec was read.
    """
    variants = spec.variants
    if variants is None or variants.archives is not None:
        return spec
    stored = variants.read(Path(spec.folder or Path.cwd()), archives)
    if stored.trees != variants.trees:
        raise fail("changed since the spec was read", *variants.path, fix="try again")
    return with_variants(spec, stored)


def with_variants(spec: "SweepSpec", variants: Variants) -> "SweepSpec":
    """Return a spec with other places of its versions."""
    return replace(spec, parameters={**spec.parameters, variants.parameter: variants.declared()})


def _chooses_code(declared: object) -> bool:
    return isinstance(declared, Mapping) and KEY in declared


def _is_resolved(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is as `freeze` makes it."""
    texts = all(isinstance(entry.get(key), str) for key in ("name", "source", "tree"))
    return texts and len(entry) == 3 and TREE.fullmatch(entry["tree"]) is not None
