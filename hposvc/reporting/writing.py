"""Writes the report of sweeps into files."""

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from hposvc.errors import StoreError, fail
from hposvc.journal.home import Home
from hposvc.open_sweep import OpenSweep
from hposvc.reporting.document import Section, compare, html
from hposvc.reporting.markdown import markdown

Format = Literal["html", "md", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)


def report(
    sweeps: Sequence[OpenSweep],
    out: Path | None = None,
    form: Format | None = None,
    home: Home | None = None,
) -> list[Path]:
    """Write the report of sweeps, and return its files; the first is the one to open.

    Args:
        out: the file; None: `ID-report.html` in the current folder, `report.html` of several.
        form: None: by the ending of `out`, or else html.
        home: where plans are, to say how good they were; None: do not look for them.

    Raises:
        NotFound: there is no such sweep.
        SpecError: the ending of `out` is of no format.
        StoreError: a file can't be written.
    """
    sections = [Section.read(sweep, home) for sweep in sweeps]
    chosen = form or _format_of(out)
    stem = f"{sections[0].id}-report" if len(sections) == 1 else "report"
    file = Path(f"{stem}.{chosen}") if out is None else out
    contents = files(sections, chosen, file.stem)
    named = dict(zip([file.name, *list(contents)[1:]], contents.values(), strict=True))
    return write(file.parent, named)


def files(sections: Sequence[Section], form: Format, stem: str) -> dict[str, str | bytes]:
    """Return the contents of a report's files by name, the one to open first."""
    match form:
        case "html":
            return {f"{stem}.html": html(sections)}
        case "md":
            return markdown(sections, stem)
        case "json":
            comparison, refusal = compare(sections)
            data = {
                "sweeps": [section.json() for section in sections],
                "comparison": None if comparison is None else comparison.data(),
                "not_compared": refusal,
            }
            return {f"{stem}.json": json.dumps(data, indent=1, allow_nan=False) + "\n"}


def write(folder: Path, contents: Mapping[str, str | bytes]) -> list[Path]:
    """Write files into a folder, each at once, so that nobody reads half of one.

    Raises:
        StoreError: a file can't be written.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            file = folder / name
            part = folder / f".{name}.{secrets.token_hex(4)}"
            try:
                part.write_bytes(content.encode() if isinstance(content, str) else content)
                part.replace(file)
            finally:
                part.unlink(missing_ok=True)
            written.append(file)
    except OSError as error:
        where = error.filename or folder
        remedy = "give another --out"
        message = f"{where} can't be written: {os.strerror(error.errno or 0)}"
        raise StoreError(message, remedy) from error
    return written


def _format_of(out: Path | None) -> Format:
    """Return the format of a file by its ending."""
    if out is None:
        return "html"
    endings = {".html": "html", ".htm": "html", ".md": "md", ".json": "json"}
    ending = endings.get(out.suffix.lower())
    chosen = next((form for form in FORMATS if form == ending), None)
    if chosen is None:
        problem = f"the ending of {out.name!r} says no format"
        raise fail(problem, "--out", fix="end it in .html, .md or .json, or give --format")
    return chosen
