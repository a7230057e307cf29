"""Read versions of a folder from its git repository: commits, and patches of the working tree.

A patch is applied to the tracked files as they are now, committed or not. Nothing is written into
the repository: new objects and the index are in a folder of their own.
"""

import glob
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hposvc.errors import fail
from searchers.names import nearest

# The same files make the same archive, whenever and by whomever.
# Variables by which a hook's git is told of its own repository.
OWN = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR"}
MADE_BY = {
    f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}
MADE_BY |= dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "@0 +0000")


@dataclass(frozen=True)
class Git:
    """git for a folder; errors are SpecErrors without a path."""

    folder: Path
    top: Path  # of the repository
    scratch: Path  # for objects and an index
    variables: Mapping[str, str]

    @classmethod
    def at(cls, folder: Path, scratch: Path) -> "Git":
        """Return git for a folder of a repository."""
        if shutil.which("git") is None:
            raise fail("are read by git, and there is none here", fix="install git")
        wrong = f"are commits and patches, and {folder} lies in no git repository"
        asked = ("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-path", "objects")
        top, objects = cls(folder, folder, scratch, {}).run(wrong, *asked).splitlines()
        own = scratch / "objects"
        own.mkdir()
        places = {"GIT_OBJECT_DIRECTORY": f"{own}", "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects}
        return cls(folder.resolve(), Path(top), scratch, {**MADE_BY, **places})

    def run(self, wrong: str, *words: str, fine: int = 0, fix: str = "") -> str:
        """Return what git prints; if it fails, the error is `wrong` and what git says."""
        command, variables = (
            ["git", "-C", f"{self.top}", *words],
            {name: text for name, text in os.environ.items() if name not in OWN}
            | {**self.variables},
        )
        ran = subprocess.run(command, capture_output=True, env=variables)
        if ran.returncode not in (0, fine):
            text = " ".join(ran.stderr.decode(errors="replace").replace("error: ", "").split())
            raise fail(": ".join(filter(None, (wrong, text))), fix=fix)
        return ran.stdout.decode(errors="surrogateescape").strip()

    def versions(self, source: str) -> Iterator[dict[str, str]]:
        """Yield the name and tree of a commit, or of each patch that a glob matches."""
        if not glob.has_magic(source) and not source.endswith((".diff", ".patch")):
            commit, tree = self._commit(source), self._tree(source)
            yield {"name": f"{source}@{commit[:7]}", "source": source, "tree": tree}
            return
        patches = sorted(glob.glob(f"{self.folder / source}", recursive=True))  # noqa: PTH207 - any place
        if not patches:
            raise fail(f"{source} matches no file", fix=f"patches are sought from {self.folder} on")
        for patch in patches:
            tree = self._tree(self._patched(patch))
            yield {"name": f"{Path(patch).stem}@{tree[:7]}", "source": patch, "tree": tree}

    def _commit(self, name: str) -> str:
        known = self.run("", "for-each-ref", "--format=%(refname:short)").split()
        wrong = f"is {name}, which is no branch, tag or commit"
        asked = ("rev-parse", "-q", "--verify", "--end-of-options", f"{name}^{{commit}}")
        return self.run(wrong, *asked, fix=nearest(name, known))

    def _patched(self, patch: str) -> str:
        """Return the hash of the working tree with a patch."""
        wrong, own = f"{patch} does not apply to the working tree", self.scratch / "index"
        index = self.run(wrong, "rev-parse", "--path-format=absolute", "--git-path", "index")
        shutil.copy2(index, own)  # with its time, by which git sees what changed just now
        git = replace(self, variables={**self.variables, "GIT_INDEX_FILE": f"{own}"})
        git.run(wrong, "add", "-u")
        git.run(wrong, "apply", "--cached", "--whitespace=nowarn", patch)
        return git.run(wrong, "write-tree")

    def _tree(self, version: str) -> str:
        """Return the hash of the folder in a version, and refuse what git itself does not hold."""
        prefix = "" if self.folder == self.top else self.folder.relative_to(self.top).as_posix()
        wrong = f"has no folder {prefix} in {version}"
        tree = self.run(wrong, "rev-parse", "-q", "--verify", f"{version}:{prefix}")
        files = self.run(wrong, "ls-tree", "-r", "--full-tree", tree).splitlines()
        lost = [line.partition("\t")[2] for line in files if line.split()[1] == "commit"]
        pointers = ("grep", "-lI", "^version https://git-lfs", tree)
        lost += self.run(wrong, *pointers, fine=1).splitlines()
        if lost:
            name = lost[0].removeprefix(f"{tree}:")
            raise fail(f"has {name} in a submodule or Git LFS, which can't be frozen")
        return tree

    def write(self, tree: str, file: Path) -> None:
        """Write the files of a tree as a tar, unless that is there."""
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            draft, wrong = file.with_suffix(f".{os.getpid()}"), f"can't be stored in {file}"
            commit = self.run(wrong, "commit-tree", tree, "-m", "x")
            self.run(wrong, "archive", "--format=tar", "-o", f"{draft}", commit)
            draft.replace(file)
        os.utime(file)  # `gc` deletes what is old and unused
