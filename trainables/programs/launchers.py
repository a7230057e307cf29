"""Output of torchrun, which ends with a long report of its own when a rank has failed."""

import re

from trainables.errors import TRACEBACK

REPORT = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
LOG_LINE = re.compile(r"[EWI]\d{4} .*torch/distributed/elastic/")
KILLED = re.compile(r"failed \(exitcode: (-\d+)\) local_rank: (\d+)")


def without_torchrun_report(text: str) -> str:
    """Return a program's output without what torchrun (2.13) says about a rank that failed.

    The report is a traceback of torchrun and a table of ranks. It has no word of why the rank
    failed, so it would hide the rank's own last lines. Of a rank that a signal ended, which may
    have no last lines, the signal's number stays.
    """
    output, _, report = text.rpartition(TRACEBACK)
    if REPORT not in report:
        return text
    lines = [line for line in output.splitlines() if not LOG_LINE.match(line)]
    lines += [
        f"rank {rank} was ended by signal {code[1:]}" for code, rank in KILLED.findall(output)
    ]
    return "\n".join(lines)
