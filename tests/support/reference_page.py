"""docs/reference as tables, for the tests that hold its pages against the code."""

import re
from collections.abc import Iterator
from pathlib import Path

PAGES = ("spec", "command", "json", "api", "python", "mlflow")
FOLDER = Path(__file__).parents[2] / "docs" / "reference"
TEXT = "".join((FOLDER / f"{page}.md").read_text(encoding="utf-8") for page in PAGES)


def section(title: str) -> str:
    """Return the text below a heading, up to the next heading of the same or a higher level."""
    match = re.search(rf"^(#+) {re.escape(title)}$", TEXT, re.MULTILINE)
    assert match is not None, f"the page has no section {title}"
    below = TEXT[match.end() :]
    following = re.search(rf"^#{{1,{len(match[1])}}} ", below, re.MULTILINE)
    return below[: following.start()] if following else below


def rows(*headings: str, text: str = TEXT) -> Iterator[list[str]]:
    """Yield the cells of each row of all tables whose header begins with these headings."""
    is_below = False
    for line in text.splitlines():
        if not line.startswith("|"):
            is_below = False
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if is_below and set(cells[0]) != {"-", " "} and set(cells[0]) != {"-"}:
            yield cells
        if cells[: len(headings)] == list(headings):
            is_below = True


def spec_keys() -> dict[str, tuple[str, str]]:
    """Return the type and the default of each key of a spec; without a default an empty text."""
    cells = {codes(key)[0]: kind for key, kind, _ in rows("key", "type (default)")}
    split = {key: re.fullmatch(r"(.+?)(?: \((.+)\))?", kind) for key, kind in cells.items()}
    return {key: (match[1], match[2] or "") for key, match in split.items() if match}


def codes(cell: str) -> list[str]:
    """Return the texts in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def braced(cell: str, nth: int = 0) -> set[str]:
    """Return the keys of the nth text of a cell like `{"sweep","state"}`."""
    found = [text for text in codes(cell) if text.startswith("{")]
    return set(re.findall(r'"(\w+)"', found[nth]))


def verb_documents() -> dict[str, str]:
    """Return what each verb prints as JSON, as the page describes it."""
    return {verb: cell for names, cell in rows("verb", "prints") for verb in codes(names)}
