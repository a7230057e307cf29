"""`docs`: open the pages about hposvc in a browser.

They are built into hposvc/site by `make site`, for a wheel too. In a checkout without it, the pages
are those of docs/, in Markdown.
"""

import os
import sys
import webbrowser
from pathlib import Path

import click

import hposvc
from hposvc.errors import fail
from hposvc.verbs.options import Shared, verb
from hposvc.views.console import emit
from searchers.names import closest

PACKAGE = Path(hposvc.__file__).parent
PLACES = ((PACKAGE / "site", "html"), (PACKAGE.parent / "docs", "md"))
NO_PAGES = ("genindex", "search", "py-modindex")


def pages() -> dict[str, Path]:
    """Return the file of each page by its name; of two with one name, the one in fewer folders.

    Raises:
        SpecError: there are no pages.
    """
    for folder, ending in PLACES:
        files = {path.relative_to(folder).with_suffix("") for path in folder.rglob(f"*.{ending}")}
        if files:
            by_depth = sorted(files, key=lambda file: -len(file.parts))
            return {
                file.name: folder / f"{file}.{ending}"
                for file in by_depth
                if file.name not in NO_PAGES
            }
    raise fail("this installation has no pages", "docs", fix="run `make site` in a checkout first")


def has_browser() -> bool:
    """Return whether a browser can open a window that the user sees."""
    if "SSH_CONNECTION" in os.environ:
        return False
    return sys.platform != "linux" or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())


def complete_page(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Return the pages whose name begins like this."""
    return [name for name in pages() if name.startswith(begun)]


@verb
@click.argument("page", required=False, default="index", shell_complete=complete_page)
@click.option("--path", "print_path", is_flag=True, help="Print the page's file, and open nothing.")
def docs_command(shared: Shared, page: str, print_path: bool) -> None:
    """Open the documentation in a browser, or its page PAGE, such as `spec` or `optuna`.

    It needs no network. Without a browser, as over ssh, the page's file is printed; the same page
    in Markdown lies beside it.
    """
    known = pages()
    if page not in known:
        close = closest(page, known)
        hint = f"did you mean {close!r}? " if close else ""
        raise fail(f"no page {page!r}", "docs", fix=f"{hint}there are {', '.join(sorted(known))}")
    path = known[page]
    if shared.json({"page": page, "path": str(path)}):
        return
    if print_path or not has_browser() or not webbrowser.open(path.as_uri()):
        emit(f"{path}\n")
