"""The log files that ranks write into a sweep's folder."""

import codecs
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hposvc.journal.home import LOG
from trainables.contract import log_file


@dataclass(frozen=True)
class Log:
    """The log file that one rank wrote during one order."""

    trial: str
    order: int
    rank: int
    path: Path

    def part(self, most: int, offset: int | None = None) -> dict[str, Any]:
        """Return the log for JSON, with a part of its text, and where that begins and ends.

        Args:
            most: at most so many bytes.
            offset: of the first byte, and only whole characters; None: the last bytes.
        """

        def opener(name: str, flags: int) -> int:  # follow no link and await no pipe in its place
            return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)

        with open(self.path, "rb", opener=opener) as file:
            size = os.fstat(file.fileno()).st_size  # less than before, if a long log was shortened
            begin = max(0, size - most) if offset is None else min(size, offset)
            file.seek(begin)
            content = file.read(most)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(content, final=offset is None)
        end = begin + len(content) - len(decoder.getstate()[0])
        return {**asdict(self), "path": str(self.path), "text": text, "offset": begin, "next": end}


def list_logs(folder: Path, trial: str) -> list[Log]:
    """Return the log files of a trial's ranks in a sweep's folder, oldest order first."""
    matching = log_file(folder, trial, 0, 0).parent.glob("*-*.log")
    files = [file for file in matching if LOG.fullmatch(file.name)]
    files = [file for file in files if stat.S_ISREG(file.lstat().st_mode)]
    numbers = {file: file.stem.partition("-") for file in files}
    logs = [Log(trial, int(order), int(rank), file) for file, (order, _, rank) in numbers.items()]
    return sorted(logs, key=lambda log: (log.order, log.rank))
