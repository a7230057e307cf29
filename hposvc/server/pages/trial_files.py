"""The texts, pictures and tables that a trial's code logged to MLflow, and its other files.

Whoever wrote the code chose names and contents. So pages show texts and tables as text; a browser
gets a file itself as a picture of pixels, or to be saved, never as something that it would run.
"""

import csv
import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePosixPath
from typing import IO
from urllib.parse import quote

from anyio import move_on_after
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from hposvc import api
from hposvc.errors import NotFound, StoreError
from hposvc.journal.journal import SweepRow
from hposvc.server.access import Principal, Reader
from hposvc.server.pages.rendering import page
from hposvc.server.problems import RETRY_S, ApiError
from hposvc.server.routes.sweeps import SweepId, TrialId
from hposvc.server.service import Service, Serving
from hposvc.spec import SweepSpec
from hposvc.tracking.mlflow_server import is_recorded, tracking_uri
from hposvc.tracking.run_files import (
    LoggedFile,
    RunFiles,
    TooLarge,
    check_path,
    list_files,
    open_files,
    read_file,
)

router = APIRouter()

PICTURES = {  # what browsers show without running anything; an SVG may hold scripts
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
TABLES = (".json", ".csv")
TEXTS = (".txt", ".md", ".log", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".tsv", ".toml", ".py")
# How `mlflow.log_image(image, key=..., step=...)` names a file; versions before 3.10 used %.
STEP_IMAGE = re.compile(
    r"(?P<key>.+)[+%]step[+%](?P<step>\d+)[+%]timestamp[+%](?P<time>\d+)[+%][0-9a-f-]+"
    r"(?P<small>[+%]compressed)?\.(png|webp)"
)
MOST_PICTURES, MOST_TABLES, MOST_TEXTS, MOST_OTHERS = 24, 6, 6, 50  # of a page
MOST_ROWS, MOST_COLUMNS, MOST_CELL = 20, 12, 120  # of a table, and characters of a cell
MOST_SHOWN = 1 << 20  # bytes of a text or a table that is read
TEXT_SHOWN = 1 << 14  # characters of a text
MOST_READ = 24  # texts and tables that are tried
MOST_BYTES = 32 << 20  # of a file that is sent
PART = 1 << 18  # bytes that are sent at once
PATIENCE_S = 0.2  # to wait until fewer files are read
SEND_S = 60.0  # for a file: who is slower makes others wait
CONFINED = {"Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'"}


@dataclass(frozen=True)
class Table:
    """A table as it is shown."""

    file: LoggedFile
    columns: list[str]
    rows: list[list[str]]  # the first ones
    total: int


@dataclass(frozen=True)
class Text:
    """The beginning of a text."""

    file: LoggedFile
    text: str
    is_cut: bool


@dataclass
class Logged:
    """A trial's files, as a page shows them."""

    pictures: list[tuple[str, LoggedFile]] = field(default_factory=list)  # with their titles
    tables: list[Table] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)
    others: list[LoggedFile] = field(default_factory=list)
    left_out: int = 0  # of the others
    is_whole: bool = True  # all files of the run were listed
    odd: int = 0  # files that were left out for their names or sizes

    def __bool__(self) -> bool:
        return bool(self.pictures or self.tables or self.texts or self.others or self.odd)


class Sent(StreamingResponse):
    """A file that is sent in parts, for a limited time; what it needs is held until then."""

    def __init__(self, file: IO[bytes], held: ExitStack, media_type: str, disposition: str) -> None:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        headers = {"Content-Disposition": disposition, "Content-Length": f"{size}", **CONFINED}
        super().__init__(_parts(file, size), media_type=media_type, headers=headers)
        self._held = held.pop_all()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file; the connection is cut if its end is not reached in time."""
        with self._held, move_on_after(SEND_S):
            await super().__call__(scope, receive, send)


def _parts(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield a file as long as it was when it was opened."""
    while size > 0 and (part := file.read(min(size, PART))):
        size -= len(part)
        yield part


@router.get("/sweeps/{id}/trials/{t}/files")
def show_files(
    request: Request, service: Serving, caller: Reader, sweep: SweepId, trial: TrialId
) -> Response:
    """Return a page with what a trial's code logged to MLflow; it says if MLflow is away."""
    row, spec, run = _find(service, caller, sweep, trial)
    logged, problem = Logged(), ""
    if run is None:
        recorded = "It has no run in MLflow yet."
        problem = recorded if is_recorded(spec) else "This sweep is not recorded in MLflow."
    else:
        try:
            with _opened(service, spec, run) as files:
                logged = _look(files)
        except StoreError as error:
            problem = f"{error}"
    return page(
        request, "files.html", sweep=row.id, row=row, trial=trial, logged=logged, problem=problem
    )


@router.get("/sweeps/{id}/trials/{t}/files/{path:path}")
def get_file(
    service: Serving, caller: Reader, sweep: SweepId, trial: TrialId, path: str
) -> Response:
    """Return a file that a trial's code logged to MLflow."""
    _, spec, run = _find(service, caller, sweep, trial)
    name = PurePosixPath(check_path(path)).name
    if run is None:
        raise NotFound(f"{trial} has no run in MLflow")
    media_type = PICTURES.get(_suffix(name), "application/octet-stream")
    kind = "inline" if media_type in PICTURES.values() else "attachment"
    disposition = f"{kind}; filename*=UTF-8''{quote(name, safe='')}"
    try:
        with ExitStack() as held:
            files = held.enter_context(_opened(service, spec, run))
            file = held.enter_context(files.open(path, MOST_BYTES))
            return Sent(file, held, media_type, disposition)
    except TooLarge as error:
        raise ApiError(413, "too_large", f"{error}") from error


def _find(
    service: Service, caller: Principal, sweep: str, trial: str
) -> tuple[SweepRow, SweepSpec, str | None]:
    """Return a sweep, its spec, and a trial's run in MLflow; None: there is none yet.

    Raises:
        NotFound: there is no such sweep that the caller may see, or no such trial.
    """
    row = service.find(caller, sweep)
    with service.folded.open(row) as folded:
        record = folded.record(lambda state: [trial])
        api.check_trial(record, trial)
        return row, record.state.spec, record.runs.get(trial)


@contextmanager
def _opened(service: Service, spec: SweepSpec, run: str) -> Iterator[RunFiles]:
    """Open the files of a run; only some requests at a time may read files or wait for MLflow.

    Raises:
        ApiError: enough requests do so already.
        StoreError: MLflow is out of reach, or its files can't be read from here.
    """
    if not service.reading_files.acquire(timeout=PATIENCE_S):
        message = "enough other files are being read just now; try again in a moment"
        raise ApiError(503, "busy", message, headers={"Retry-After": f"{RETRY_S}"})
    try:
        yield open_files(service.sweeps.home, tracking_uri(service.sweeps.home, spec), run)
    finally:
        service.reading_files.release()


def _look(files: RunFiles) -> Logged:
    """Return what a page shows of a run's files."""
    listing = list_files(files)
    logged = Logged(is_whole=listing.is_whole, odd=listing.odd)
    tried = 0
    pictures, rest = _pictures(listing.files)
    logged.pictures = pictures[:MOST_PICTURES]
    rest += [file for _, file in pictures[MOST_PICTURES:]]
    for file in rest:
        is_tried = tried < MOST_READ and _is_shown(file, logged)
        tried += is_tried
        if not is_tried or not _read(files, file, logged):
            logged.others.append(file)
    logged.left_out = max(0, len(logged.others) - MOST_OTHERS)
    logged.others = logged.others[:MOST_OTHERS]
    return logged


def _pictures(files: list[LoggedFile]) -> tuple[list[tuple[str, LoggedFile]], list[LoggedFile]]:
    """Return the pictures with their titles, and the other files.

    Of pictures that were logged under one key at several steps, the newest one is shown.
    """
    newest: dict[str, tuple[tuple[int, int], LoggedFile]] = {}
    pictures: list[tuple[str, LoggedFile]] = []
    others: list[LoggedFile] = []
    for file in files:
        match = STEP_IMAGE.fullmatch(file.name)
        if _suffix(file.name) not in PICTURES or file.size > MOST_BYTES:
            others.append(file)
        elif match is None:
            pictures.append((file.path, file))
        elif not match["small"]:
            place = int(match["step"]), int(match["time"])
            key = match["key"].replace("~", "/")
            if key not in newest or place > newest[key][0]:
                newest[key] = place, file
    by_step = [(f"{key}, step {place[0]}", file) for key, (place, file) in newest.items()]
    return [*by_step, *pictures], others


def _is_shown(file: LoggedFile, logged: Logged) -> bool:
    """Return whether there is room on the page for a text or a table."""
    suffix = _suffix(file.name)
    room = (suffix in TABLES and len(logged.tables) < MOST_TABLES) or (
        suffix in TEXTS and len(logged.texts) < MOST_TEXTS
    )
    return room and file.size <= MOST_SHOWN


def _read(files: RunFiles, file: LoggedFile, logged: Logged) -> bool:
    """Read a text or a table, and return whether it can be shown."""
    try:
        content = read_file(files, file.path, MOST_SHOWN)
    except (NotFound, TooLarge):  # it went, or grew, since it was listed
        return False
    text = content.decode(errors="replace")
    columns, rows, total = _table(_suffix(file.name), text)
    if columns and len(logged.tables) < MOST_TABLES:
        shown = [[_cell(each) for each in row[:MOST_COLUMNS]] for row in rows]
        head = [_cell(name) for name in columns[:MOST_COLUMNS]]
        logged.tables.append(Table(file, head, shown, total))
        return True
    if len(logged.texts) < MOST_TEXTS:
        logged.texts.append(Text(file, text[:TEXT_SHOWN], len(text) > TEXT_SHOWN))
        return True
    return False


def _table(suffix: str, text: str) -> tuple[list[object], list[list[object]], int]:
    """Return columns, first rows, and number of rows of a table; no columns: the text is none."""
    none: tuple[list[object], list[list[object]], int] = ([], [], 0)
    if suffix == ".csv":
        lines = csv.reader(io.StringIO(text))
        try:
            head = next(lines, [])
            first = [[*line] for line in islice(lines, MOST_ROWS)]
            return [*head], [[*line] for line in first], len(first) + sum(1 for _ in lines)
        except (csv.Error, ValueError):
            return none
    if suffix != ".json":
        return none
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return none
    if not isinstance(data, dict):
        return none
    columns, rows = data.get("columns"), data.get("data")  # as `mlflow.log_table` writes it
    if not isinstance(columns, list) or not isinstance(rows, list):
        return none
    if not all(isinstance(row, list) for row in rows):
        return none
    return columns, rows[:MOST_ROWS], len(rows)


def _cell(value: object) -> str:
    """Return a value of a table as a short text that can be encoded."""
    try:
        text = f"{value:.6g}" if isinstance(value, float) else "" if value is None else f"{value}"
    except RecursionError:  # lists in lists, deeper than Python writes
        text = "…"
    text = text.encode(errors="replace").decode()
    return text if len(text) <= MOST_CELL else f"{text[: MOST_CELL - 1]}…"


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()
