"""The site of these pages: `make site` builds it into hposvc/site, and `hposvc docs` opens it.

Nothing in it comes from the network. Beside each page lies its Markdown, and llms.txt lists all.
"""

import os
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]
os.environ.setdefault("KERAS_BACKEND", "torch")

import generated  # noqa: E402 - it is found by the lines above

from hposvc.verbs.docs import list_for_llms  # noqa: E402 - likewise

project = "hposvc"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
nitpick_ignore_regex = [("py:.*", ".*")]  # the types of other packages have no pages here

myst_heading_anchors = 4  # GitHub's
myst_enable_extensions = ["attrs_inline"]
default_role = "literal"  # docstrings have `code` in single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

smartquotes = False  # --set stays --set

html_theme = "furo"
html_title = "hposvc"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_search_summary = False  # a browser reads no other page from disk
copybutton_prompt_text = "$ "

# Links to files that the site does not have, and pictures that have a dark one beside them.
OUTSIDE = re.compile(
    r"(?<!!)\[([^\]]*)\]\((?:\.\./)+((?:benchmarks|cluster|examples|hposvc|[A-Z]+\.md)[^)#]*)[^)]*\)"
)
LIGHT = re.compile(r"(!\[[^\]]*\]\([^)]*-)light(\.\w+\))")
PICTURE = re.compile(r"!?\[([^\]]*)\]\([^)]*\.(?:png|svg)\)")

sources: dict[str, str] = {}  # Markdown of each page


def name_file(link: re.Match[str]) -> str:
    """Return what stands in place of a link to a file of the repository that is no page."""
    text, path = link.groups()
    return f"`{path}`" if text.strip("`") in path else f"{text} (`{path}`)"


def prepare(app: Sphinx, page: str, source: list[str]) -> None:
    """Fill in what a page takes from the code, and keep its Markdown."""
    sources[page] = OUTSIDE.sub(name_file, generated.fill(page, source[0]))
    source[0] = LIGHT.sub(r"\1light\2{.only-light}\1dark\2{.only-dark}", sources[page])


def drop_fields(app: Sphinx, what: str, *rest: object) -> tuple[str, None] | None:
    """Show a class without the arguments of its __init__, many of which are ours alone."""
    return ("", None) if what in ("class", "exception") else None


def link_pages(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Link the pages that a docstring names by `hposvc docs NAME`."""
    for number, line in enumerate(lines):
        lines[number] = generated.MENTION.sub(
            lambda mention: f":doc:`{mention[1]} </{generated.pages()[mention[1]]}>`", line
        )


def write_markdown(app: Sphinx, error: Exception | None) -> None:
    """Write each page as Markdown, and llms.txt: their titles and for whom they are."""
    if error is not None or app.builder.name != "html":
        return
    texts = {
        f"{page}.md": PICTURE.sub(r"\1", generated.without_autodoc(text))
        for page, text in sources.items()
    }
    for path, text in texts.items():
        Path(app.outdir, path).write_text(text, encoding="utf-8")
    Path(app.outdir, "llms.txt").write_text(list_for_llms(texts.items()), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Take part in the build."""
    app.connect("source-read", prepare)
    app.connect("autodoc-process-signature", drop_fields)
    app.connect("autodoc-process-docstring", link_pages)
    app.connect("build-finished", write_markdown)
