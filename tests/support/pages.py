"""The pages of docs/ and the blocks of code in them."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def read(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def fenced(text: str) -> list[tuple[str, str]]:
    """Return the language and the text of each block, in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str = "python") -> list[str]:
    return [text for word, text in fenced(read(page)) if word == language]


def block(page: str, text: str) -> str:
    """Return the Python block of a page that has this text."""
    (found,) = (block for block in blocks(page) if text in block)
    return found


def play(
    page: str, folder: Path, python: "Callable[..., subprocess.CompletedProcess[str]]", *files: str
) -> list[str]:
    """Run the commands and programs of a page, one after the other; return what each printed.

    Args:
        python: runs `python ARGUMENTS` in the folder, and checks that it ends well.
        files: names of the files that the page's first blocks of Python and of YAML are.
    """
    endings = {"python": ".py", "yaml": ".yaml"}
    names = {word: [name for name in files if name.endswith(endings[word])] for word in endings}
    printed = []
    for language, text in fenced(read(page)):
        if language == "bash":
            for line in text.splitlines():
                command, *arguments = shlex.split(line)
                assert command == "hposvc"
                printed.append(python("-m", "hposvc", *arguments, cwd=folder).stdout)
        elif names[language]:
            (folder / names[language].pop(0)).write_text(text)
        else:
            assert language == "python"
            (folder / "program.py").write_text(text)
            printed.append(python("program.py", cwd=folder).stdout)
    return printed


def run(page: str, folder: Path) -> list[list[str]]:
    """Run the Python blocks of a page, as one script; return the words of the lines printed."""
    script = folder / "page.py"
    script.write_text("".join(blocks(page)))
    environment = {**os.environ, "HPOSVC_HOME": str(folder / "home")}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines() if line]
