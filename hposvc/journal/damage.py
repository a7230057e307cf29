"""Content that a damaged journal still holds, read from a copy."""

import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import select

from hposvc.errors import StoreError
from hposvc.journal.database import SWEEPS, Store
from hposvc.journal.journal import Journal

PAGES_AT, PAGE_SIZE_AT = slice(28, 32), slice(16, 18)  # in a file of SQLite, big-endian


@dataclass
class Remains:
    """The sweeps that can still be read."""

    whole: list[str] = field(default_factory=list)
    cut: dict[str, int] = field(default_factory=dict)  # the last event that can be read, by sweep

    def __str__(self) -> str:
        parts = [f"whole: {', '.join(self.whole)}"] if self.whole else []
        parts += [f"{sweep} up to event {last}" for sweep, last in self.cut.items()]
        return "; ".join(parts) or "no sweep in it can be read"


def find_remains(file: Path) -> Remains:
    """Return what can be read of a damaged journal; its file is left as it is.

    Raises:
        OSError: a copy of it does not fit on the disk for temporary files.
    """
    remains = Remains()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / file.name
        shutil.copy(file, copy)
        log_file = file.with_name(f"{file.name}-wal")
        if log_file.exists():
            shutil.copy(log_file, copy.with_name(log_file.name))
        # SQLite reads nothing of a file that is shorter than its head says.
        with copy.open("r+b") as output:
            head = output.read(100)
            length = int.from_bytes(head[PAGES_AT]) * int.from_bytes(head[PAGE_SIZE_AT])
            output.truncate(max(copy.stat().st_size, length))
        with suppress(StoreError):
            store = Store(f"sqlite:///{copy}")
            try:
                _read(Journal(store), remains)
            finally:
                store.close()
    return remains


def _read(journal: Journal, remains: Remains) -> None:
    with journal.store.reading() as connection:
        names = connection.execute(select(SWEEPS.c.id).order_by(SWEEPS.c.created)).scalars().all()
    for name in names:
        last = 0
        try:
            journal.find(name)
            for number, _ in journal.read(name):
                last = number
        except (StoreError, ValueError):
            remains.cut[name] = last
        else:
            remains.whole.append(name)
