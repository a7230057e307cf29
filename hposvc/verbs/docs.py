"""`docs`: show the pages about hposvc, in a browser or in the terminal.

They are built into hposvc/site by `make site`, for a wheel too. Without it, the pages are those of
docs/, in Markdown: in a checkout, or beside the installed examples.
"""

import os
import re
import sys
import webbrowser
from collections.abc import Iterable
from pathlib import Path

import click
from rich.markdown import Markdown

from hposvc.drafts import examples
from hposvc.drafts.examples import SITE
from hposvc.errors import fail
from hposvc.verbs.options import Shared, verb
from hposvc.views.console import console, emit, make_grid, show
from searchers import closest

LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
LLMS_HEAD = (
    "# hposvc\n\n> Hyperparameter sweeps on Ray. Each page is listed with whom it is for.\n\n"
)
NO_PAGES = ("genindex", "search", "py-modindex")


def pages() -> dict[str, Path]:
    """Return the file of each page by its name; of two with one name, the one in fewer folders.

    Raises:
        SpecError: there are no pages.
    """
    built = (SITE / "index.html").is_file()
    folder = SITE if built else examples.folder("docs", "index.md")
    found = sorted(folder.rglob("*.html" if built else "*.md"), key=lambda file: -len(file.parts))
    return {file.stem: file for file in found if file.stem not in NO_PAGES}


def list_for_llms(texts: Iterable[tuple[str, str]]) -> str:
    """Return llms.txt: the title of each page, and for whom it is; from paths and Markdown."""
    lines = []
    for path, text in sorted(texts):
        title, first = [LINK.sub(r"\1", line) for line in text.splitlines() if line][:2]
        lines.append(f"- [{title.lstrip('# ')}]({path}): {first}\n")
    return LLMS_HEAD + "".join(lines)


def has_browser() -> bool:
    """Return whether a browser can open a window that the user sees."""
    if "SSH_CONNECTION" in os.environ:
        return False
    return sys.platform != "linux" or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())


def complete_page(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Return the pages whose name begins like this."""
    return [name for name in pages() if name.startswith(begun)]


@verb
@click.argument("page", required=False, shell_complete=complete_page)
@click.option("--path", "print_path", is_flag=True, help="Print the page's file, and show nothing.")
@click.option("--llms", is_flag=True, help="Print llms.txt: all pages, for a language model.")
def docs_command(shared: Shared, page: str | None, print_path: bool, llms: bool) -> None:
    """List the pages of the documentation, or show PAGE, such as `spec`.

    After `make site`, and where there is a browser, it opens there; else the page's Markdown is
    shown in the terminal. It needs no network.
    """
    if llms:
        files, folder = {*pages().values()}, pages()["index"].parent
        texts = ((file.relative_to(folder).with_suffix(".md"), _markdown(file)) for file in files)
        emit(list_for_llms((path.as_posix(), text) for path, text in texts))
        return
    known, name = pages(), page or "index"
    if name not in known:
        close = closest(name, known)
        hint = f"did you mean {close!r}? " if close else ""
        raise fail(f"no page {name!r}", "docs", fix=f"{hint}there are {', '.join(sorted(known))}")
    path = known[name]
    if shared.json({"page": name, "path": str(path)}):
        return
    if print_path:
        emit(f"{path}\n")
    elif path.suffix == ".html" and has_browser() and webbrowser.open(path.as_uri()):
        return
    elif page is None:
        show(make_grid((name, _first_line(known[name])) for name in sorted(known)))
    elif not sys.stdout.isatty():
        emit(_markdown(path))
    else:
        with (target := console(sys.stdout)).pager():
            target.print(Markdown(_markdown(path), hyperlinks=False), width=min(target.width, 100))


def _markdown(page: Path) -> str:
    return page.with_suffix(".md").read_text(encoding="utf-8")


def _first_line(page: Path) -> str:
    """Return the line below the title, which says for whom the page is."""
    return [line for line in _markdown(page).splitlines() if line][1]
