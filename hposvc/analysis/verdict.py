"""Keep, retest or discard: a candidate against a baseline, from pairs of runs of both.

Where nothing differs, a pair's difference is as likely above zero as below, whatever the noise, so
bets on its sign can't win. The wealth is multiplied by 1 + 0.7 sqrt(r / i) sign, where the size of
the i-th difference is the r-th smallest of the first i. By Ville's inequality it ever reaches 20
with probability 1/20 at most, so one may look after each pair, with heavy-tailed noise too.

Source: Ramdas, Grünwald, Vovk and Shafer, Game-theoretic statistics and safe anytime-valid
inference, Statistical Science 38 (2023), sections 2 and 3; Vovk and Wang, Efficiency of
nonparametric e-tests, Operations Research (2024), for tests of symmetry by signs and ranks.
"""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from statistics import median
from typing import Literal

from hposvc.errors import NotFound, fail
from hposvc.open_sweep import Record, check_trial
from hposvc.state.evidence import PROOF
from hposvc.state.trial import TrialState
from hposvc.text import number
from searchers import identity, nearest
from trainables.storage.checkpoint import TRIAL

DOUBT = 5.0  # wealth of the opposite bets that discards a candidate
BET = 0.7  # share of the wealth on the largest difference so far
FEWEST = math.ceil(math.log(PROOF) / math.log(1 + BET))  # pairs that can keep a candidate
MOST = 20  # pairs; without proof by then, it is discarded

Choice = Literal["KEEP", "RETEST", "DISCARD"]
EXIT_CODES: Mapping[Choice, int] = {"KEEP": 0, "RETEST": 10, "DISCARD": 20}


@dataclass(frozen=True)
class CandidateVerdict:
    """The decision about a candidate, and the evidence of its pairs of runs."""

    verdict: Choice
    baseline: str
    candidate: str
    metric: str
    pairs: int
    better_by: float | None  # the median over pairs, in the metric's unit; None: no finite one
    evidence: float  # the wealth of bets on the candidate; 20 keeps it
    evidence_against: float  # of bets on the baseline; 5 discards the candidate
    more: int  # pairs to add before it is worth another look; 0: it is decided
    retest: str = ""  # the command that gives both more runs; empty: it is decided

    @property
    def sentence(self) -> str:
        """The verdict in words, with the command that gives more runs."""
        known = ""
        if self.better_by is not None:
            word = "better" if self.better_by >= 0 else "worse"
            known = f", the median {number(abs(self.better_by))} {word} in {self.metric}"
        seen = f"{self.pairs} pairs of runs{known}: "
        if self.verdict == "RETEST":
            return f"{seen}too few; give each {self.more} more: {self.retest}"
        other = "it is worse" if self.evidence_against >= PROOF else "not shown to be better"
        return seen + ("it is better" if self.verdict == "KEEP" else other)


def wealth(differences: Sequence[float]) -> float:
    """Return the wealth of bets that differences are above zero, from 1 on."""
    won = 1.0
    for i, difference in enumerate(differences, start=1):
        rank = sum(abs(earlier) <= abs(difference) for earlier in differences[:i])
        if difference:
            won *= 1 + math.copysign(BET * math.sqrt(rank / i), difference)
    return won


def decide(differences: Sequence[float]) -> tuple[Choice, int]:
    """Return the choice, and how many pairs to add before the next look.

    Args:
        differences: by how much the candidate's loss is lower, of each pair, first pair first.
    """
    pairs, won, lost = len(differences), wealth(differences), wealth([-x for x in differences])
    if won >= PROOF:
        return "KEEP", 0
    if lost >= DOUBT or pairs >= MOST:
        return "DISCARD", 0
    likely = math.log(PROOF / won) / math.log(won) * pairs if won > 1 else 0
    return "RETEST", max(1, FEWEST - pairs, math.ceil(min(likely, MOST - pairs)))


def judge_candidate(
    baseline: tuple[Record, str], candidate: tuple[Record, str]
) -> CandidateVerdict:
    """Return the verdict on a candidate.

    Args:
        baseline: a sweep, and a trial of it or a version of its code; and the candidate likewise.

    Raises:
        NotFound: there is no such trial or version.
        SpecError: a sweep has several metrics, or the sweeps have different ones.
    """
    names = [f"{record.row.id}/{name}" for record, name in (baseline, candidate)]
    if names[0] == names[1]:
        raise fail(f"{names[0]} is compared with itself; name two trials or versions", "verdict")
    for (record, name), full in zip((baseline, candidate), names, strict=True):
        if (trial := record.state.trials.get(name)) is not None and (why := _why_worthless(trial)):
            raise fail(f"{full} {why}, so it can't be compared by further runs", "verdict")
    metric, *others = {*baseline[0].state.spec.objectives, *candidate[0].state.spec.objectives}
    if others:
        raise fail(f"{names[0]} and {names[1]} need one metric, and the same", "verdict")
    ours, theirs = _runs(*baseline), _runs(*candidate)
    differences = [
        0.0 if before == now else before - now
        for key, runs in ours.items()
        for before, now in zip(runs, theirs.get(key, ()), strict=False)
    ]
    choice, more = decide(differences)
    finite = [difference for difference in differences if math.isfinite(difference)]
    return CandidateVerdict(
        verdict=choice,
        baseline=names[0],
        candidate=names[1],
        metric=metric.name,
        pairs=len(differences),
        better_by=median(finite) if finite else None,
        evidence=wealth(differences),
        evidence_against=wealth([-difference for difference in differences]),
        more=more,
        retest=_retest(baseline, candidate, len(differences) + more) if more else "",
    )


def _why_worthless(trial: TrialState) -> str:
    """Return why a trial is none of those that finalists are chosen from; empty: it is one."""
    if trial.excluded:
        return f"is excluded ({trial.excluded})"
    if trial.state == "FAILED":
        return f"failed ({trial.reason})"
    if trial.diverged:
        return "diverged"
    return "" if trial.kept else "is beyond a limit"


def _retest(baseline: tuple[Record, str], candidate: tuple[Record, str], runs: int) -> str:
    """Return the command that trains both so often, with the same seeds.

    A fork of a sweep trains the configurations of its trials alone.
    """
    record, name = candidate
    if not TRIAL.fullmatch(name):
        values = "'parameters.seed.values=[0, 1, ...]'"
        return f"hposvc fork {record.row.id} --set warm_start=null --set {values}"
    sides = []
    for one, trial in (baseline, candidate):
        params, searched = one.state.trials[trial].params, one.state.spec.space.searched
        sides.append((one.row.id, trial, {key: params[key] for key in searched if key in params}))
    together = sides[0][0] == sides[1][0]
    forks, trials = [], []
    for sweep, trial, params in sides[: 1 if together else 2]:
        points = [one for *_, one in sides] if together else [params]
        pair = f"{sweep}-{'-'.join(one for _, one, _ in sides) if together else trial}"
        sets = {
            **dict.fromkeys(("warm_start", "baseline"), "null"),
            "scheduler": "fifo",
            "initial": json.dumps(points),
            "trials.max": len(points),
            "finalists": f"{{top: {len(points)}, seeds: {runs}}}",
        }
        words = " ".join(f"--set {quote(f'{key}={value}')}" for key, value in sets.items())
        forks.append(f"hposvc fork {sweep} --id {pair} {words}")
        trials += [f"{pair}/t{at + 1:04d}" for at in range(len(points))]
    return " && ".join([*forks, f"hposvc verdict {' '.join(trials)}"])


def _runs(record: Record, name: str) -> Mapping[object, Sequence[float]]:
    """Return the losses of a trial's replicates, or of a version's trials by configuration.

    A failed run has the worst loss, infinity; one that was stopped early is left out.
    """
    state, code = record.state, record.state.spec.variants
    keyed: list[tuple[object, TrialState]]
    if code is None or name in state.trials:
        check_trial(record, name)
        replicates = state.replicates.trials.values()
        keyed = [(run.number, run) for run in replicates if run.replicate_of == name]
    else:
        full, chooser = code.names.get(name, name), code.parameter
        if full not in code.trees:
            message = f"{record.row.id} has no trial or version {name}"
            raise NotFound(message, nearest(name, code.names))
        keyed = [
            (identity({**run.params, chooser: ""}), run)
            for run in state.trials.values()
            if run.params[chooser] == full
        ]
    runs = defaultdict[object, list[float]](list)
    for key, run in keyed:
        if run.state == "FAILED" and not run.excluded:
            runs[key].append(math.inf)
        elif run.state == "COMPLETED" and run.value is not None:
            runs[key].append(run.metric.loss(run.value))
    return runs
