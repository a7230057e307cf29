"""Keep, retest or discard: a candidate against a baseline, from pairs of runs of both.

Where nothing differs, a pair's difference is as likely above zero as below, whatever the noise, so
bets on its sign can't win. The wealth is multiplied by 1 + 0.7 sqrt(r / i) sign, where the size of
the i-th difference is the r-th smallest of the first i. By Ville's inequality it ever reaches 20
with probability 1/20 at most, so one may look after each pair, with heavy-tailed noise too.

That holds for one candidate. Of N of a sweep that were compared with a baseline, N/20 are kept by
chance at most, on average; evidence of 20 N is proof whatever their number.

Source: Ramdas, Grünwald, Vovk and Shafer, Game-theoretic statistics and safe anytime-valid
inference, Statistical Science 38 (2023), sections 2 and 3; Vovk and Wang, Efficiency of
nonparametric e-tests, Operations Research (2024), for tests of symmetry by signs and ranks.
"""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from shlex import quote
from statistics import median
from typing import Literal

from hposvc.errors import NotFound, fail
from hposvc.open_sweep import Record, check_trial
from hposvc.spec.variants import Variants
from hposvc.state.evidence import PROOF
from hposvc.state.trial import TrialState
from hposvc.text import number
from searchers import nearest

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
    looks: int  # candidates so far: of its sweep, all versions, or trials with replicates
    by_chance: float  # of these, how many are kept at most if none is better, on average
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
            return f"{seen}too few; {self.more} more: {self.retest}"
        other = "it is worse" if self.evidence_against >= PROOF else "not shown to be better"
        words = "it is better" if self.verdict == "KEEP" else other
        if self.looks == 1:
            return seen + words
        chance = number(self.by_chance)
        return (
            f"{seen}{words}. One of {self.looks} candidates, of which chance keeps {chance} at most"
        )


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
    likely = math.log(PROOF / won) / math.log(won) * pairs if won > 1 else pairs / 4
    return "RETEST", max(1, FEWEST - pairs, math.ceil(min(likely, MOST - pairs)))


def judge_candidate(
    baseline: tuple[Record, str], candidate: tuple[Record, str]
) -> CandidateVerdict:
    """Return the verdict on a candidate.

    Args:
        baseline: a sweep, and a trial of it or a version of its code; and the candidate likewise.

    Raises:
        NotFound: there is no such trial or version.
        SpecError: a sweep has several metrics, or the sweeps have different ones; or a trial is
            compared with a version.
    """
    ours, theirs = _Side.of(*baseline), _Side.of(*candidate)
    if ours.full == theirs.full:
        raise fail(f"{ours.full} is compared with itself; name two trials or versions", "verdict")
    if (ours.code is None) != (theirs.code is None):
        message = f"{ours.full} and {theirs.full} are a trial and a version; name two of a kind"
        raise fail(message, "verdict")
    for side in (ours, theirs):
        trial = side.record.state.trials.get(side.name)
        if trial is not None and (why := _why_worthless(trial)):
            raise fail(f"{side.full} {why}, so it can't be compared by further runs", "verdict")
    metric, *others = {*baseline[0].state.spec.objectives, *candidate[0].state.spec.objectives}
    if others:
        raise fail(f"{ours.full} and {theirs.full} need one metric, and the same", "verdict")
    runs = theirs.collect()
    own = (runs if ours.record is theirs.record else ours.collect())[ours.name]
    differences = _differences(own, runs[theirs.name])
    own_name = {ours.name} if ours.record.row.id == theirs.record.row.id else set()
    looks = len({*runs, theirs.name} - own_name)
    choice, more = decide(differences)
    finite = [difference for difference in differences if math.isfinite(difference)]
    return CandidateVerdict(
        verdict=choice,
        baseline=ours.full,
        candidate=theirs.full,
        metric=metric.name,
        pairs=len(differences),
        better_by=median(finite) if finite else None,
        evidence=wealth(differences),
        evidence_against=wealth([-difference for difference in differences]),
        more=more,
        looks=looks,
        by_chance=looks / PROOF,
        retest=_retest(ours, theirs, more) if more else "",
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


Runs = Mapping[Hashable, Sequence[tuple[float, float]]]  # when each began, and its loss


@dataclass(frozen=True)
class _Side:
    """A trial of a sweep, or a version of its code."""

    record: Record
    name: str
    code: Variants | None  # None: it is a trial

    @classmethod
    def of(cls, record: Record, name: str) -> "_Side":
        state, code = record.state, record.state.spec.variants
        if code is None or name in state.trials:
            check_trial(record, name)
            return cls(record, name, None)
        full = code.named(name)
        if full not in code.trees:
            message = f"{record.row.id} has no trial or version {name}"
            raise NotFound(message, nearest(name, code.names))
        return cls(record, full, code)

    @property
    def full(self) -> str:
        return f"{self.record.row.id}/{self.name}"

    def collect(self) -> Mapping[str, Runs]:
        """Return the runs of each of its kind in its sweep, by what both runs of a pair share.

        Of a trial these are its replicates, of a version its trials, with replicates that are no
        mere copies. A failed run has the worst loss, infinity; one stopped early is left out.
        """
        state, code = self.record.state, self.code
        found = defaultdict[str, dict[Hashable, list[tuple[float, float]]]](dict)
        for run in (*state.trials.values(), *state.replicates.trials.values()):
            trial, is_again = state.trials[run.shown_as], run.replicate_of is not None
            name, shared = trial.id, None
            if code is not None:
                name, shared = f"{trial.params[code.parameter]}", code.others(trial.params)
            losses = [run.metric.loss(value) for value in run.own_values]
            ends = {"COMPLETED": losses, "FAILED": [math.inf]}.get(run.state)
            counts = code is None or trial.id not in self.copied if is_again else code is not None
            if ends and counts and not run.excluded:
                key = shared, run.number if is_again else 0
                found[name].setdefault(key, []).append((run.ordered_at, ends[0]))
        return found

    @cached_property
    def copied(self) -> Collection[str]:
        """The trials whose replicates only repeat their values, as their seed is a parameter."""
        state, values = self.record.state, defaultdict[str, set[tuple[float, ...]]](set)
        for run in state.replicates.trials.values():
            values[run.shown_as] |= {run.own_values} if run.own_values else set()
        return [name for name, seen in values.items() if seen == {state.trials[name].own_values}]

    @property
    def trials(self) -> Mapping[Hashable, TrialState]:
        """Its trials that count, by what those of a pair share; the best first."""
        state, code = self.record.state, self.code
        if code is None:
            return {None: state.trials[self.name]}
        ranked = (trial for trial in state.ranked() if not trial.excluded)
        own = (trial for trial in ranked if trial.params[code.parameter] == self.name)
        return {code.others(trial.params): trial for trial in own}


def _differences(ours: Runs, theirs: Runs) -> list[float]:
    """Return by how much the candidate's loss is lower in each pair, the oldest pair first."""
    pairs = [
        (max(began, then), 0.0 if before == now else before - now)
        for key, runs in ours.items()
        for (began, before), (then, now) in zip(runs, theirs.get(key, ()), strict=False)
    ]
    return [difference for _, difference in sorted(pairs, key=lambda pair: pair[0])]


def _retest(baseline: _Side, candidate: _Side, more: int) -> str:
    """Return the command that trains both again, with so many further seeds, and looks again."""
    ours, theirs = baseline.trials, candidate.trials
    look = f"hposvc verdict {quote(baseline.full)} {quote(candidate.full)}"
    shared = [key for key in ours if key in theirs]
    if not shared or (baseline.code and (baseline.copied or candidate.copied)):
        lacking = [(candidate, trial) for key, trial in ours.items() if key not in theirs]
        lacking += [(baseline, trial) for key, trial in theirs.items() if key not in ours]
        side, like = lacking[0] if lacking else (baseline, None)
        return f"{_propose(side, like)}; {look}"
    sides = ((baseline.record, ours[shared[0]]), (candidate.record, theirs[shared[0]]))
    seeds, again = more + max(_seeds_used(*side) for side in sides), defaultdict[str, str](str)
    for record, trial in sides:
        again[record.row.id] += f" --set seeds.{trial.id}={seeds}"
    return "; ".join([*(f"hposvc extend {sweep}{sets}" for sweep, sets in again.items()), look])


def _seeds_used(record: Record, trial: TrialState) -> int:
    """Return with how many other seeds a trial was trained, as `extend --set seeds.T` counts."""
    replicates = record.state.replicates
    own = (run for run in replicates.trials.values() if run.replicate_of == trial.id and run.over)
    return max((run.number - replicates.own_seeds for run in own), default=0)


def _propose(lacking: _Side, like: TrialState | None) -> str:
    """Return the command that trains a version with the values of another one's best trial."""
    record, code = lacking.record, lacking.code
    assert code is not None  # a trial has itself
    values: dict[str, object] = {code.parameter: lacking.name}
    if like is not None:
        searched = record.state.spec.space.searched
        values = {name: like.params[name] for name in searched if name in like.params} | values
    words = " ".join(f"--set {quote(f'{name}={json.dumps(it)}')}" for name, it in values.items())
    more = f"; hposvc extend {record.row.id} --trials 1" if record.state.finished else ""
    return f"hposvc propose {record.row.id} {words} --run{more}"
