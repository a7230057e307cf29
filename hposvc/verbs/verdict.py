"""`verdict`: keep, retest or discard a candidate; hposvc/analysis/verdict.py decides."""

from dataclasses import asdict

import click

from hposvc.analysis.verdict import EXIT_CODES, judge_candidate
from hposvc.open_sweep import Record
from hposvc.verbs.options import Shared, verb
from hposvc.views.console import show


@verb
@click.argument("baseline")
@click.argument("candidate")
def verdict_command(shared: Shared, baseline: str, candidate: str) -> int:
    """Say whether a candidate is better than a baseline: KEEP, RETEST or DISCARD.

    Each is SWEEP/TRIAL, which stands for the trial's replicates, or SWEEP/VERSION of the code. The
    exit code is 0, 10 or 20. You may look after every new run: at most one useless candidate in 20
    is kept.
    """

    def find(text: str) -> tuple[Record, str]:
        sweep, separator, name = text.partition("/")
        if not separator:
            raise click.UsageError(f"{text} names no trial; write SWEEP/TRIAL or SWEEP/VERSION")
        return shared.open_sweep(sweep).record(), name

    answer = judge_candidate(find(baseline), find(candidate))
    if not shared.json({**asdict(answer), "sentence": answer.sentence}):
        show(f"{answer.verdict}: {answer.sentence}")
    return EXIT_CODES[answer.verdict]
