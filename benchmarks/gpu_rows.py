"""The rows that parts of gpu.py measure, their files, and the table of all."""

import datetime
import json
import os
import platform
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from tables import table

PACKAGES = ("torch", "numpy", "transformers", "accelerate", "lightning", "scikit-learn")


@dataclass(frozen=True)
class Setting:
    """What all parts have in common."""

    device: torch.device
    quick: bool  # each part in miniature: figures say nothing

    @property
    def gpu(self) -> bool:
        """Whether there is a GPU to measure."""
        return self.device.type == "cuda"


@dataclass(frozen=True)
class Row:
    """A figure that was measured, or the reason why there is none."""

    what: str
    value: str = ""
    aim: str = ""
    skipped: str = ""
    failed: str = ""


Part = Callable[[Setting], Iterator[Row]]


class Skip(Exception):
    """Raised by a measurement that cannot be made here; the message says why."""


def attempt(what: str, aim: str, measure: Callable[[], str]) -> Row:
    """Return the row of a measurement, whatever comes of it: a later part may still be worth it."""
    try:
        return Row(what, measure(), aim)
    except Skip as reason:
        return Row(what, aim=aim, skipped=str(reason))
    except Exception as error:  # noqa: BLE001 - the row says what
        lines = f"{type(error).__name__}: {error}".splitlines()
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Row(what, aim=aim, failed=f"{lines[0]} ({Path(where.filename).name}:{where.lineno})")


def run(number: int, part: Part, setting: Setting, command: str, folder: Path) -> Sequence[Row]:
    """Measure a part, and write its rows into the folder after each one: a session may be cut."""
    rows: list[Row] = []
    content = {
        "part": number,
        "title": (part.__doc__ or "").splitlines()[0].removesuffix("."),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": _name(setting.device),
        "versions": ", ".join(_versions()),
        "command": command,
        "quick": setting.quick,
    }
    for row in part(setting):
        rows.append(row)
        content["rows"] = [asdict(row) for row in rows]
        written = folder / f"part{number}.json.new"
        written.write_text(json.dumps(content, indent=1))
        written.rename(folder / f"part{number}.json")
    return rows


def merged(folder: Path) -> str:
    """Return the table of all parts in the folder."""
    files = sorted(folder.glob("part*.json"), key=lambda file: int(file.stem.removeprefix("part")))
    lines = []
    for content in (json.loads(file.read_text()) for file in files):
        for number, row in enumerate(content["rows"]):
            row = Row(**row)
            value = row.value or (f"failed: {row.failed}" if row.failed else "")
            lines.append(
                [
                    f"{content['part']}. {content['title']}" if not number else "",
                    row.what,
                    value or f"not measured: {row.skipped}",
                    row.aim or "–",
                    content["date"][:10],
                    content["device"],
                    content["versions"],
                    f"`{content['command']}`",
                ]
            )
    head = ["part", "what", "measured", "aim", "date", "device", "versions", "command"]
    quick = any(json.loads(file.read_text())["quick"] for file in files)
    warning = "Some parts ran in miniature (`--quick`): their figures say nothing.\n\n"
    return warning * quick + table(head, [[_cell(text) for text in line] for line in lines])


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        driver = torch.version.cuda
        return f"{torch.cuda.get_device_name(device)}, CUDA {driver}"
    return f"{platform.machine()} CPU, {os.cpu_count()} cores"


def _versions() -> Iterator[str]:
    yield f"Python {platform.python_version()}"
    for package in PACKAGES:
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            yield f"no {package}"
