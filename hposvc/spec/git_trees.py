"""Read versions of a folder from its git repository: commits, and patches of the current commit.

Uncommitted changes are in no version. The files of a patched commit become objects that no branch
has, which git deletes after some weeks; nothing else is written into the repository.
"""

import glob
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hposvc.errors import fail
from searchers import nearest

# Variables by which a hook's git is told of its own repository.
OWN = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR"}
PATCHES = (".diff", ".patch")


@dataclass(frozen=True)
class Git:
    """git in a folder; its errors are of a key of a spec."""

    folder: Path
    key: tuple[str, ...] = ()
    index: str = ""  # a file in place of the repository's index

    def run(self, *words: str, wrong: str = "", fix: str = "") -> str:
        """Return what git prints; if it fails, the error is `wrong` and what git says."""
        variables = {name: text for name, text in os.environ.items() if name not in OWN}
        variables |= {"GIT_INDEX_FILE": self.index} if self.index else {}
        # Without locks, other git processes are not disturbed.
        command = ["git", "--no-optional-locks", "-C", f"{self.folder}", *words]
        try:
            ran = subprocess.run(command, capture_output=True, env=variables)
        except FileNotFoundError as error:
            raise fail("needs git, and there is none here", *self.key, fix="install it") from error
        if ran.returncode:
            text = ran.stderr.decode(errors="replace").replace("error: ", "")
            message = f"{wrong or f'{self.folder} fails git'}: {' '.join(text.split())}"
            raise fail(message.removesuffix(": "), *self.key, fix=fix)
        return os.fsdecode(ran.stdout).removesuffix("\n")

    def changes(self) -> list[str]:
        """Return the tracked files of the folder that differ from the last commit."""
        return self.run("diff", "--name-only", "--relative", "HEAD").splitlines()

    def versions(self, source: str) -> Iterator[tuple[str, str]]:
        """Yield the name and tree of a commit, or of each patch that a glob matches."""
        if not glob.has_magic(source) and not source.endswith(PATCHES):
            known = self.run("for-each-ref", "--format=%(refname:short)").split()
            wrong = f"is {source}, which is no branch, tag or commit, and no .diff or .patch file"
            asked = ("rev-parse", "-q", "--verify", "--end-of-options", f"{source}^{{commit}}")
            commit = self.run(*asked, wrong=wrong, fix=nearest(source, known))
            yield f"{source}@{commit[:7]}", self._tree(commit, source)
            return
        matches = glob.glob(f"{self.folder / source}", recursive=True)  # noqa: PTH207 - any place
        patches = [match for match in sorted(matches) if match.endswith(PATCHES)]
        if not patches:
            fix = f"patches are sought from {self.folder} on"
            raise fail(f"{source} matches no .diff or .patch file", *self.key, fix=fix)
        for patch in patches:
            wrong = f"{patch} does not apply to the last commit"
            with self._with_index("HEAD") as git:
                git.run("apply", "--cached", "--whitespace=nowarn", patch, wrong=wrong)
                tree = self._tree(git.run("write-tree"), patch)
            yield f"{Path(patch).stem}@{tree[:7]}", tree

    @contextmanager
    def _with_index(self, tree: str) -> Iterator["Git"]:
        """Give git in the repository's top, with an index of its own that holds a tree."""
        top = self.run("rev-parse", "--show-toplevel")
        with TemporaryDirectory() as scratch:
            git = replace(self, folder=Path(top), index=f"{scratch}/index")
            git.run("read-tree", tree)
            yield git

    def _tree(self, version: str, name: str) -> str:
        """Return the hash of the folder in a version of the repository."""
        wrong = f"{name} has no folder {self.folder}"
        tree = self.run("rev-parse", "-q", "--verify", f"{version}:./", wrong=wrong)
        if "\n160000 " in "\n" + self.run("ls-tree", "-r", "--full-tree", tree):
            raise fail(f"{name} has a submodule, which can't be frozen", *self.key)
        return tree

    def write(self, tree: str, place: Path) -> None:
        """Write the files of a tree into a folder, as a checkout does."""
        with self._with_index(tree) as git:
            git.run("checkout-index", "-a", "-f", f"--prefix={place}/", wrong="can't be stored")
